"""How long the rest of some work will take."""


def time_left(seconds: float, done: int, total: int) -> str:
    """`, 3 min left`, at the pace of what was done in so many seconds; "" where nothing is done, or all."""
    if not 0 < done < total:
        return ""
    rest = seconds / done * (total - done)
    minutes = round(rest / 60)
    shown = f"{rest:.0f} s" if rest < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    return f", {shown} left"
