"""Every task by the name that plans know it by: the one registry."""

from tasks.embed_parts import compare_parts, embed_part, merge_embeddings
from tasks.generate import generate
from tasks.ocr import merge_documents, read_document, read_part
from tasks.rerank import embed_and_compare, merge_scores, rank, score
from tasks.responses.respond import respond
from tasks.split import split
from tasks.transcribe import transcribe, write_transcript
from tasks.types import Task

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
    "ocr": read_document,
    "ocr_part": read_part,
    "merge_ocr": merge_documents,
    "transcribe": transcribe,
    "write_transcript": write_transcript,
}
