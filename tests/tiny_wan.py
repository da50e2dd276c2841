"""Tiny Wan pipelines with fixed random weights, of half a MiB each: real enough for diffusers to load and run.

What they film means nothing; it is the same on every run of one torch with one thread. torch and diffusers are imported
when a pipeline is built: the import costs seconds.
"""

from pathlib import Path
from typing import Any, Final

_WIDTH: Final = 32
"""Of the text encoder's states."""
_LATENTS: Final = 16
_CONDITION: Final = 20
"""Channels that an image adds to the latents: its own, and four of a mask."""


def write_tiny_wan(folder: Path, *, seed: int = 0) -> Path:
    """A `WanPipeline` of Wan 2.2's shape, with a network for each half of the noise; return `folder`."""
    from diffusers import WanPipeline

    return _written(WanPipeline, folder, seed, boundary_ratio=0.875)


def write_tiny_wan_i2v(folder: Path, *, seed: int = 0) -> Path:
    """A `WanImageToVideoPipeline` of Wan 2.2's shape; return `folder`."""
    from diffusers import WanImageToVideoPipeline

    return _written(WanImageToVideoPipeline, folder, seed, channels=_LATENTS + _CONDITION, boundary_ratio=0.9)


def write_tiny_wan_ti2v(folder: Path, *, seed: int = 0) -> Path:
    """A `WanPipeline` whose one network takes a first frame, too, as TI2V-5B's does; return `folder`."""
    from diffusers import WanPipeline

    return _written(WanPipeline, folder, seed, two=False, expand_timesteps=True)


def _written(kind: Any, folder: Path, seed: int, *, channels: int = _LATENTS, two: bool = True, **config: Any) -> Path:
    import torch
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler
    from transformers import UMT5Config, UMT5EncoderModel

    torch.manual_seed(seed)
    text = UMT5Config(vocab_size=300, d_model=_WIDTH, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
    vae = AutoencoderKLWan(
        base_dim=3, z_dim=_LATENTS, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True]
    )
    pipe = kind(
        tokenizer=_tokenizer(),
        text_encoder=UMT5EncoderModel(text).eval(),
        vae=vae.eval(),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0, num_train_timesteps=1000
        ),
        transformer=_network(channels),
        transformer_2=_network(channels) if two else None,
        **config,
    )
    pipe.save_pretrained(folder, safe_serialization=True)
    return folder


def _network(channels: int) -> Any:
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=channels,
        out_channels=_LATENTS,
        text_dim=_WIDTH,
        freq_dim=256,
        ffn_dim=32,
        num_layers=2,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    ).eval()


def _tokenizer() -> Any:
    """Every byte a token: no two prompts are alike."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="</s>", model_max_length=512
    )
