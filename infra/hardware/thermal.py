"""When a card is too hot for new work, and when it may work again."""

from dataclasses import dataclass, field

COOLER_BY_C = 5


@dataclass(slots=True)
class ThermalGate:
    """One card's gate: closed at or above `limit_c`, open again once it is `COOLER_BY_C` degrees cooler than that."""

    limit_c: int
    closed: bool = field(default=False, init=False)

    def update(self, temperature_c: int | None) -> str | None:
        """Take a reading; why the card takes no new work, or None.

        A card that never tells its temperature is never closed; one that stops telling while it is closed stays so.
        """
        if temperature_c is not None:
            opens_at_c = self.limit_c - COOLER_BY_C
            self.closed = temperature_c > opens_at_c if self.closed else temperature_c >= self.limit_c
        if not self.closed:
            return None
        seen = "temperature unknown" if temperature_c is None else f"{temperature_c} °C"
        return f"{seen}, limit {self.limit_c} °C"
