"""The gate that keeps new work off a hot card."""

from infra.hardware.thermal import ThermalGate


def test_closes_at_the_limit_and_opens_five_degrees_lower() -> None:
    gate = ThermalGate(80)
    assert gate.update(79) is None
    assert gate.update(80) == "80 °C, limit 80 °C"
    assert gate.update(83) == "83 °C, limit 80 °C"
    assert gate.update(76) == "76 °C, limit 80 °C"
    assert gate.update(75) is None
    assert gate.update(79) is None


def test_without_a_reading_it_stays_as_it_is() -> None:
    gate = ThermalGate(80)
    assert gate.update(None) is None
    assert gate.update(81) is not None
    assert gate.update(None) == "temperature unknown, limit 80 °C"
    assert gate.update(60) is None
    assert gate.update(None) is None
