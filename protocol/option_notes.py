"""How a broker of ours marks options in the documentation that DescribeConfigs gives (v3), for those who show it."""

from __future__ import annotations

NO_EFFECT = "No effect here: "  # begins the last sentence of an option that is kept and changes nothing; why follows
