"""How far a policy may go. One that can refuse or delay work ships with all three, after Finagle's DeadlineFilter.

Decides: nothing; names the three. Must not know: any policy.
"""

from __future__ import annotations

from typing import Literal

Mode = Literal["off", "dark", "on"]
"""off: not asked. dark: asked, and what it would have done is counted; nothing is done. on: done."""
