"""Deletes stored answers, of responses and of chats, when their time has come."""

import asyncio
import logging
from typing import Final

from infra.answer_pruning import prune
from infra.database import Database
from infra.errors import CoderAIError
from infra.sections import ResponsesSettings

log = logging.getLogger("api.openai.responses")

EVERY_S: Final = 600.0


async def keep_pruning(database: Database, settings: ResponsesSettings, every_s: float = EVERY_S) -> None:
    """Look every few minutes, for ever; a database that does not answer is asked again the next time."""
    while True:
        try:
            gone = await asyncio.to_thread(prune, database, settings.keep_days, settings.max_mib * 2**20)
        except CoderAIError as error:
            log.warning("stored answers could not be looked through: %s", error.message)
        else:
            if gone:
                log.info("%d stored answers have gone, by responses.keep_days and responses.max_mib", gone)
        await asyncio.sleep(every_s)
