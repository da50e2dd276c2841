"""AMD cards as Linux shows them."""

import shutil

from infra.hardware.cards import CardReading
from infra.hardware.detect import detect, read_card
from infra.settings import CardsSettings
from tests.infra.hardware.fakes import GIB, FakeSys, machine


def test_an_amd_card_by_its_serial(sys: FakeSys) -> None:
    sys.add_connector("card1-DP-1")
    folder = sys.add_amd(1)
    here = machine(sys)
    card, _ = detect(CardsSettings(), here)
    assert (card.id, card.backend, card.name) == ("rocm-8c1d3b5a9e7f0246", "rocm", "Radeon RX 7900 XTX")
    assert card.env == {"ROCR_VISIBLE_DEVICES": "GPU-8c1d3b5a9e7f0246"}
    assert card.total_bytes == 24 * GIB
    assert read_card(card, here) == CardReading(22 * GIB, 62)
    (folder / "mem_info_vram_used").write_text("?\n")
    assert "no memory figures" in (read_card(card, here).problem or "")
    shutil.rmtree(folder)
    assert "has gone" in (read_card(card, here).problem or "")


def test_an_amd_card_without_a_serial_is_pinned_by_number(sys: FakeSys) -> None:
    sys.add_amd(0, serial="0")
    sys.add_amd(10)
    sys.add_amd(2, serial="ffff")
    assert [card.uuid for card in detect(CardsSettings(), machine(sys))[:-1]] == [
        "0",
        "GPU-000000000000ffff",
        "GPU-8c1d3b5a9e7f0246",
    ]
