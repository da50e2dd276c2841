"""Every task by the name that plans know it by: the one registry."""

from tasks.embed_parts import compare_parts, embed_part, merge_embeddings
from tasks.far_images import draw_far, stream_far
from tasks.far_video import film_far
from tasks.generate import generate
from tasks.images import collect_images, draw_images, stream_images
from tasks.ocr import merge_documents, read_document, read_part
from tasks.recording_parts import cut_recording, merge_transcripts, transcribe_part
from tasks.rerank import embed_and_compare, merge_scores, rank, score
from tasks.responses.compact import compact
from tasks.responses.count import count_tokens
from tasks.responses.respond import respond
from tasks.speech import join_speech, speak, speak_far, speak_part
from tasks.split import split
from tasks.transcribe import transcribe, write_transcript
from tasks.transcript_stream import stream_transcript
from tasks.types import Task
from tasks.video import collect_videos, film_video

TASKS: dict[str, Task] = {
    "generate": generate,
    "score": score,
    "embed": embed_and_compare,
    "rank": rank,
    "split": split,
    "embed_part": embed_part,
    "merge_embeddings": merge_embeddings,
    "compare_parts": compare_parts,
    "merge_scores": merge_scores,
    "respond": respond,
    "count_tokens": count_tokens,
    "compact": compact,
    "ocr": read_document,
    "ocr_part": read_part,
    "merge_ocr": merge_documents,
    "draw_images": draw_images,
    "draw_far": draw_far,
    "collect_images": collect_images,
    "stream_images": stream_images,
    "stream_far": stream_far,
    "film_video": film_video,
    "film_far": film_far,
    "collect_videos": collect_videos,
    "transcribe": transcribe,
    "stream_transcript": stream_transcript,
    "cut_recording": cut_recording,
    "transcribe_part": transcribe_part,
    "merge_transcripts": merge_transcripts,
    "write_transcript": write_transcript,
    "speak": speak,
    "speak_part": speak_part,
    "speak_far": speak_far,
    "join_speech": join_speech,
}
