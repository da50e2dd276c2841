"""Tiny diffusers pipelines with fixed random weights, of some hundred KiB each: real enough for diffusers to run.

What they draw means nothing; it is the same on every run of one torch with one thread. torch and diffusers are imported
when a pipeline is built: the import costs seconds.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

FORGIVEN: Final = (
    "ignore:.*torch.jit.script. is deprecated:DeprecationWarning",  # Kolors' encoder, which every AutoPipeline imports
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning",  # diffusers' Euler scheduler
)
"""Warnings of torch and diffusers about each other; for `pytest.mark.filterwarnings`."""
VAE_SCALE: Final = 8
"""Pixels of a latent's side, as with the real models: sizes are multiples of 8 (Flux and Z-Image: of 16)."""
_WIDTH: Final = 32
"""Of every text encoder's states."""
_BYTES: Final = 256
_SPECIAL: Final = ("<|pad|>", "<|startoftext|>", "<|im_end|>")
_END: Final = "<|endoftext|>"
_END_ID: Final = _BYTES + len(_SPECIAL)
_VOCABULARY: Final = _END_ID + 1
_CHAT_TEMPLATE: Final = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def write_tiny_sd15(folder: Path, *, seed: int = 0) -> Path:
    """A `StableDiffusionPipeline`; return `folder`."""
    import torch
    from diffusers import PNDMScheduler, StableDiffusionPipeline

    torch.manual_seed(seed)
    pipe = StableDiffusionPipeline(
        vae=_vae(),
        text_encoder=_clip(),
        tokenizer=_tokenizer(),
        unet=_unet(cross_attention_dim=_WIDTH),
        scheduler=PNDMScheduler(**_BETAS, skip_prk_steps=True, set_alpha_to_one=False, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    return _saved(pipe, folder)


def write_tiny_sdxl(folder: Path, *, seed: int = 0) -> Path:
    """A `StableDiffusionXLPipeline`; return `folder`."""
    import torch
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    torch.manual_seed(seed)
    unet = _unet(
        cross_attention_dim=2 * _WIDTH,
        use_linear_projection=True,
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=_WIDTH + 6 * 8,
    )
    pipe = StableDiffusionXLPipeline(
        vae=_vae(),
        text_encoder=_clip(),
        text_encoder_2=_clip(projects=True),
        tokenizer=_tokenizer(),
        tokenizer_2=_tokenizer(),
        unet=unet,
        scheduler=EulerDiscreteScheduler(**_BETAS, timestep_spacing="leading", steps_offset=1),
        add_watermarker=False,
    )
    return _saved(pipe, folder)


def write_tiny_flux(folder: Path, *, seed: int = 0) -> Path:
    """A `FluxPipeline` with guidance embedded, as FLUX.1-dev; return `folder`."""
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(seed)
    t5 = T5Config(vocab_size=_VOCABULARY, d_model=_WIDTH, d_kv=8, d_ff=37, num_layers=1, num_heads=4, pad_token_id=0)
    transformer = FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=_WIDTH,
        pooled_projection_dim=_WIDTH,
        guidance_embeds=True,
        axes_dims_rope=(4, 4, 8),
    )
    pipe = FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=_vae(shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=_clip(),
        tokenizer=_tokenizer(),
        text_encoder_2=T5EncoderModel(t5).eval(),
        tokenizer_2=_tokenizer(),
        transformer=transformer.eval(),
    )
    return _saved(pipe, folder)


def write_tiny_z_image(folder: Path, *, seed: int = 0) -> Path:
    """A `ZImagePipeline`; return `folder`."""
    import torch
    from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(seed)
    qwen = Qwen3Config(
        vocab_size=_VOCABULARY,
        hidden_size=_WIDTH,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=1024,
    )
    transformer = ZImageTransformer2DModel(
        in_channels=4,
        dim=_WIDTH,
        n_layers=1,
        n_refiner_layers=1,
        n_heads=2,
        n_kv_heads=2,
        cap_feat_dim=_WIDTH,
        axes_dims=[4, 6, 6],
        axes_lens=[1536, 512, 512],
    )
    with torch.no_grad():  # diffusers leaves these as they lie in memory
        for name, parameter in transformer.named_parameters():
            if "pad_token" in name:
                parameter.fill_(0.5)
    pipe = ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_vae(shift_factor=0.1159),
        text_encoder=Qwen3Model(qwen).eval(),
        tokenizer=_tokenizer(chat=True),
        transformer=transformer.eval(),
    )
    return _saved(pipe, folder)


FAMILIES: Final[dict[str, Callable[[Path], Path]]] = {
    "sd15": write_tiny_sd15,
    "sdxl": write_tiny_sdxl,
    "flux": write_tiny_flux,
    "z-image": write_tiny_z_image,
}
"""What writes a pipeline of each family into a folder."""

_BETAS: Final[dict[str, Any]] = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}


def _vae(**more: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8, 8, 8, 8),
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=4,
        sample_size=64,
        **more,
    ).eval()


def _unet(**more: Any) -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=8,
        in_channels=4,
        out_channels=4,
        norm_num_groups=4,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        **more,
    ).eval()


def _clip(*, projects: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=_VOCABULARY,
        hidden_size=_WIDTH,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=77,
        projection_dim=_WIDTH,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=_END_ID,
    )
    return (CLIPTextModelWithProjection if projects else CLIPTextModel)(config).eval()


def _tokenizer(*, chat: bool = False) -> Any:
    """Every byte a token: no two prompts are alike."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*_SPECIAL, *alphabet, _END]
    tokenizer = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if not chat:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{_SPECIAL[1]} $A {_END}", special_tokens=[(_SPECIAL[1], 1), (_END, _END_ID)]
        )
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_SPECIAL[0],
        bos_token=_SPECIAL[1],
        eos_token=_END,
        unk_token=_END,
        model_max_length=512 if chat else 77,
    )
    if chat:
        made.chat_template = _CHAT_TEMPLATE
    return made


def _saved(pipe: Any, folder: Path) -> Path:
    pipe.save_pretrained(folder, safe_serialization=True)
    return folder
