"""Times and sums as people read them."""

from datetime import datetime


def duration(seconds: float) -> str:
    """``8 s``, ``3 min``, ``2 h 05 min``, ``3 d 4 h``."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        minutes = whole % 3600 // 60
        return f"{whole // 3600} h {minutes:02d} min" if minutes else f"{whole // 3600} h"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(since: datetime | None, now: datetime) -> str:
    """How long ago that was; empty where it is not known."""
    return duration((now - since).total_seconds()) if since else ""


def dollars(amount: float) -> str:
    """``$0.004``, ``$1.20``, ``$340``."""
    if amount and amount < 0.01:
        return f"${amount:.3f}" if amount >= 0.0005 else "under $0.001"
    return f"${amount:,.2f}" if amount < 100 else f"${amount:,.0f}"
