"""What Kafka's RocksDBVersionedStoreTest (KIP-889, KIP-968) expects, as data: steps by the test's name, in snake case.

    ("put", key, value or None for a tombstone, timestamp, until when it is valid or LATE)
    ("delete", key, timestamp, (value, timestamp) of what it had or None)
    ("latest", key, value or None, timestamp)
    ("get", key, as of, (value, timestamp, valid to) or None)
    ("versions", key, from, to, [(value, timestamp, valid to)], the latest first)

Times are in ms. Kafka's tests of restoring are left out: they have the same puts, and ours restores rows, not puts.
"""

import sys
from typing import Any

NEVER = sys.maxsize
LATE = None
MIN, MAX = -(2**63), 2**63 - 1
HISTORY_MS = 300_000
WITHOUT_HISTORY = "should_allow_zero_history_retention"

# fmt: off
CASES: dict[str, list[tuple[Any, ...]]] = {
    "should_put_latest": [
        ("put", "k", "v", 10, NEVER), ("put", "k", "v2", 11, NEVER), ("latest", "k", "v2", 11),
        ("get", "k", 10, ("v", 10, 11)), ("get", "k", 11, ("v2", 11, NEVER)), ("get", "k", 12, ("v2", 11, NEVER)),
    ],
    "should_put_null_as_latest": [
        ("put", "k", None, 10, NEVER), ("put", "k", None, 11, NEVER), ("latest", "k", None, None),
        ("get", "k", 10, None), ("get", "k", 11, None), ("get", "k", 12, None),
    ],
    "should_put_older_with_non_null_latest": [
        ("put", "k", "v", 10, NEVER), ("put", "k", "v2", 8, 10), ("put", "k", "v1", 9, 10), ("put", "k", "v4", 6, 8),
        ("latest", "k", "v", 10), ("get", "k", 10, ("v", 10, NEVER)), ("get", "k", 9, ("v1", 9, 10)),
        ("get", "k", 8, ("v2", 8, 9)), ("get", "k", 7, ("v4", 6, 8)),
    ],
    "should_put_older_with_null_latest": [
        ("put", "k", None, 10, NEVER), ("put", "k", "v2", 8, 10), ("put", "k", "v1", 9, 10), ("put", "k", "v4", 6, 8),
        ("latest", "k", None, None), ("get", "k", 10, None), ("get", "k", 9, ("v1", 9, 10)),
        ("get", "k", 8, ("v2", 8, 9)), ("get", "k", 7, ("v4", 6, 8)),
    ],
    "should_put_older_null_with_non_null_latest": [
        ("put", "k", "v", 10, NEVER), ("put", "k", None, 8, 10), ("put", "k", None, 9, 10), ("put", "k", None, 6, 8),
        ("put", "k", "v5", 5, 6), ("put", "k", "v3", 7, 8), ("put", "k", None, 4, 5), ("latest", "k", "v", 10),
        ("get", "k", 10, ("v", 10, NEVER)), ("get", "k", 9, None), ("get", "k", 8, None),
        ("get", "k", 7, ("v3", 7, 8)), ("get", "k", 6, None), ("get", "k", 5, ("v5", 5, 6)), ("get", "k", 4, None),
    ],
    "should_put_older_null_with_null_latest": [
        ("put", "k", None, 10, NEVER), ("put", "k", None, 8, 10), ("put", "k", None, 9, 10), ("put", "k", None, 6, 8),
        ("put", "k", "v3", 7, 8), ("put", "k", "v5", 5, 6), ("put", "k", None, 4, 5), ("latest", "k", None, None),
        ("get", "k", 10, None), ("get", "k", 9, None), ("get", "k", 8, None), ("get", "k", 7, ("v3", 7, 8)),
        ("get", "k", 6, None), ("get", "k", 5, ("v5", 5, 6)), ("get", "k", 4, None),
    ],
    "should_put_repeat_timestamp_as_latest": [
        ("put", "k", "to_be_replaced", 10, NEVER), ("put", "k", "b", 10, NEVER), ("latest", "k", "b", 10),
        ("get", "k", 10, ("b", 10, NEVER)), ("get", "k", 9, None), ("put", "k", None, 10, NEVER),
        ("latest", "k", None, None), ("get", "k", 10, None), ("get", "k", 9, None), ("put", "k", None, 10, NEVER),
        ("latest", "k", None, None), ("get", "k", 10, None), ("get", "k", 9, None), ("put", "k", "b", 10, NEVER),
        ("latest", "k", "b", 10), ("get", "k", 10, ("b", 10, NEVER)), ("get", "k", 9, None),
    ],
    "should_put_repeat_timestamps": [
        ("put", "k", "to_be_replaced", 100020, NEVER), ("put", "k", None, 99990, 100020),
        ("put", "k", "to_be_replaced", 99990, 100020), ("put", "k", None, 99990, 100020),
        ("put", "k", "to_be_replaced", 99999, 100020), ("put", "k", "to_be_replaced", 100001, 100020),
        ("put", "k", None, 99999, 100001), ("put", "k", None, 100001, 100020), ("put", "k", None, 100010, 100020),
        ("put", "k", None, 100005, 100010), ("put", "k", "vp5", 100005, 100010),
        ("put", "k", "to_be_replaced", 99995, 99999), ("put", "k", "vn5", 99995, 99999),
        ("put", "k", None, 100020, NEVER), ("put", "k", None, 100020, NEVER), ("put", "k", "vn6", 99994, 99995),
        ("latest", "k", None, None), ("get", "k", 100030, None), ("get", "k", 100015, None),
        ("get", "k", 100006, ("vp5", 100005, 100010)), ("get", "k", 100002, None), ("get", "k", 100000, None),
        ("get", "k", 99999, None), ("get", "k", 99995, ("vn5", 99995, 99999)),
        ("get", "k", 99994, ("vn6", 99994, 99995)), ("get", "k", 99992, None),
    ],
    "should_put_into_multiple_segments": [
        ("put", "k", None, 99980, NEVER), ("put", "k", "vn10", 99990, NEVER), ("put", "k", None, 99999, NEVER),
        ("put", "k", None, 100001, NEVER), ("put", "k", "vp10", 100010, NEVER), ("put", "k", None, 100020, NEVER),
        ("latest", "k", None, None), ("get", "k", 100030, None), ("get", "k", 100015, ("vp10", 100010, 100020)),
        ("get", "k", 100005, None), ("get", "k", 100002, None), ("get", "k", 100000, None), ("get", "k", 99999, None),
        ("get", "k", 99995, ("vn10", 99990, 99999)), ("get", "k", 99985, None),
    ],
    "should_move_record_to_older_segment_during_put": [
        ("put", "k", "vp20", 100020, NEVER), ("put", "k", "vp10", 100010, 100020),
        ("put", "k", "vn10", 99990, 100010), ("put", "k", "vn2", 99998, 100010), ("put", "k", "vn1", 99999, 100010),
        ("put", "k", "vp1", 100001, 100010), ("latest", "k", "vp20", 100020),
        ("get", "k", 100030, ("vp20", 100020, NEVER)), ("get", "k", 100015, ("vp10", 100010, 100020)),
        ("get", "k", 100005, ("vp1", 100001, 100010)), ("get", "k", 100000, ("vn1", 99999, 100001)),
        ("get", "k", 99999, ("vn1", 99999, 100001)), ("get", "k", 99998, ("vn2", 99998, 99999)),
        ("get", "k", 99995, ("vn10", 99990, 99998)),
    ],
    "should_move_record_to_older_segment_with_nulls_during_put": [
        ("put", "k", None, 100020, NEVER), ("put", "k", None, 99999, 100020), ("put", "k", None, 100001, 100020),
        ("put", "k", None, 99990, 99999), ("put", "k", None, 100010, 100020), ("put", "k", "vp5", 100005, 100010),
        ("put", "k", "vn5", 99995, 99999), ("put", "k", "vn6", 99994, 99995), ("latest", "k", None, None),
        ("get", "k", 100030, None), ("get", "k", 100015, None), ("get", "k", 100006, ("vp5", 100005, 100010)),
        ("get", "k", 100002, None), ("get", "k", 100000, None), ("get", "k", 99999, None),
        ("get", "k", 99995, ("vn5", 99995, 99999)), ("get", "k", 99994, ("vn6", 99994, 99995)),
        ("get", "k", 99992, None),
    ],
    "should_fall_through_to_existing_older_segment_as_latest_during_put": [
        ("put", "k", None, 99995, NEVER), ("put", "k", "vn6", 99994, 99995), ("put", "k", "vp20", 100020, NEVER),
        ("put", "k", None, 100010, 100020), ("put", "k", None, 99999, 100010), ("put", "k", "vn2", 99998, 99999),
        ("latest", "k", "vp20", 100020), ("get", "k", 100030, ("vp20", 100020, NEVER)), ("get", "k", 100012, None),
        ("get", "k", 100000, None), ("get", "k", 99999, None), ("get", "k", 99998, ("vn2", 99998, 99999)),
        ("get", "k", 99995, None), ("get", "k", 99994, ("vn6", 99994, 99995)),
    ],
    "should_put_non_latest_tombstone_into_new_segment_with_valid_to": [
        ("put", "k", "vp30", 100030, NEVER), ("put", "k", None, 99990, 100030), ("put", "k", "vn5", 99995, 100030),
        ("put", "k", "vn1", 99999, 100030), ("put", "k", None, 99998, 99999), ("latest", "k", "vp30", 100030),
        ("get", "k", 100010, ("vn1", 99999, 100030)), ("get", "k", 99999, ("vn1", 99999, 100030)),
        ("get", "k", 99998, None), ("get", "k", 99995, ("vn5", 99995, 99998)), ("get", "k", 99990, None),
    ],
    "should_delete": [
        ("put", "k", "vp20", 100020, NEVER), ("put", "k", "vp10", 100010, 100020),
        ("put", "k", "vn10", 99990, 100010), ("put", "k", "vn2", 99998, 100010),
        ("delete", "k", 99995, ("vn10", 99990)), ("delete", "k", 100010, ("vp10", 100010)),
        ("delete", "k", 100010, None), ("delete", "k", 100025, ("vp20", 100020)),
    ],
    "should_not_put_expired": [
        ("put", "k", "v", 300010, NEVER), ("put", "k1", "v1", 10, NEVER), ("latest", "k1", "v1", 10),
        ("put", "k2", "v2", 9, LATE), ("latest", "k2", None, None),
    ],
    "should_not_delete_expired": [
        ("put", "k1", "v1", 1, NEVER), ("put", "k2", "v2", 1, NEVER), ("put", "kother", "vother", 300010, NEVER),
        ("delete", "k1", 10, ("v1", 1)), ("latest", "k1", None, None), ("delete", "k2", 9, None),
        ("latest", "k2", "v2", 1),
    ],
    "should_get_from_older_segments": [
        ("put", "ko", None, 99990, NEVER), ("put", "ko", None, 199990, NEVER), ("put", "ko", None, 299990, NEVER),
        ("get", "k", 99980, None), ("put", "k", "v", 99980, NEVER), ("put", "k", None, 99990, NEVER),
        ("get", "k", 99970, None), ("get", "k", 99985, ("v", 99980, 99990)), ("get", "k", 99995, None),
        ("put", "k", "v2", 299980, NEVER), ("put", "k", None, 299990, NEVER), ("get", "k", 99970, None),
        ("get", "k", 99985, ("v", 99980, 99990)), ("get", "k", 99995, None),
    ],
    "should_not_get_expired": [
        ("put", "k", "v_old", 0, NEVER), ("put", "k", "v", 99990, NEVER), ("get", "k", 99989, ("v_old", 0, 99990)),
        ("put", "ko", "vo", 399989, NEVER), ("get", "k", 99989, ("v_old", 0, 99990)),
        ("put", "ko", "vo2", 399990, NEVER), ("get", "k", 99989, None),
    ],
    "should_get_expired_if_latest_value": [
        ("put", "k", "v", 1, NEVER), ("put", "ko", "vo_old", 1, NEVER), ("put", "ko", "vo_new", 300012, NEVER),
        ("get", "k", 10, ("v", 1, NEVER)), ("get", "ko", 10, None),
    ],
    "should_distinguish_empty_and_null": [
        ("put", "k", None, 100020, NEVER), ("put", "k", None, 99990, 100020), ("put", "k", None, 99999, 100020),
        ("put", "k", None, 100001, 100020), ("put", "k", None, 100010, 100020), ("put", "k", "", 100005, 100010),
        ("put", "k", "", 99995, 99999), ("put", "k", "", 99994, 99995), ("latest", "k", None, None),
        ("get", "k", 100030, None), ("get", "k", 100015, None), ("get", "k", 100006, ("", 100005, 100010)),
        ("get", "k", 100002, None), ("get", "k", 100000, None), ("get", "k", 99999, None),
        ("get", "k", 99995, ("", 99995, 99999)), ("get", "k", 99994, ("", 99994, 99995)), ("get", "k", 99992, None),
    ],
    "should_get_record_versions_from_older_segments": [
        ("put", "ko", None, 99990, NEVER), ("put", "ko", None, 199990, NEVER), ("put", "ko", None, 299990, NEVER),
        ("versions", "k", 99980, 100000, []), ("put", "k", "v1", 99970, NEVER), ("put", "k", "v2", 99975, NEVER),
        ("put", "k", None, 99980, NEVER), ("put", "k", None, 99985, NEVER), ("put", "k", "v3", 99990, NEVER),
        ("put", "k", "v4", 99995, NEVER), ("versions", "k", 99960, 99965, []),
        ("versions", "k", 99970, 99995, [
            ("v4", 99995, NEVER), ("v3", 99990, 99995), ("v2", 99975, 99980), ("v1", 99970, 99975)
        ]),
        ("versions", "k", MIN, MAX, [
            ("v4", 99995, NEVER), ("v3", 99990, 99995), ("v2", 99975, 99980), ("v1", 99970, 99975)
        ]),
        ("versions", "k", 99996, 100000, [("v4", 99995, NEVER)]),
        ("versions", "k", 99995, 99995, [("v4", 99995, NEVER)]),
        ("versions", "k", 99996, 99996, [("v4", 99995, NEVER)]),
        ("versions", "k", 99969, 99979, [("v2", 99975, 99980), ("v1", 99970, 99975)]),
        ("versions", "k", 99976, 99989, [("v2", 99975, 99980)]),
        ("versions", "k", 99989, 99996, [("v4", 99995, NEVER), ("v3", 99990, 99995)]),
        ("versions", "k", 99974, 99995, [
            ("v4", 99995, NEVER), ("v3", 99990, 99995), ("v2", 99975, 99980), ("v1", 99970, 99975)
        ]),
        ("versions", "k", 99985, 99990, [("v3", 99990, 99995)]), ("versions", "k", 99981, 99984, []),
        ("put", "k", "v5", 299970, NEVER), ("put", "k", None, 299980, NEVER), ("versions", "k", 99960, 99965, []),
        ("versions", "k", 99970, 99974, [("v1", 99970, 99975)]), ("versions", "k", 99981, 99984, []),
    ],
    "should_get_record_versions_in_ascending_order": [
        ("put", "k", "v1", 99970, NEVER), ("put", "k", "v2", 99975, NEVER), ("put", "k", "v3", 99990, NEVER),
        ("put", "k", "v4", 99995, NEVER),
        ("versions", "k", 99970, 99995, [
            ("v4", 99995, NEVER), ("v3", 99990, 99995), ("v2", 99975, 99990), ("v1", 99970, 99975)
        ]),
    ],
    "should_get_record_versions_from_multiple_old_segments_in_ascending_order": [
        ("put", "k", "v1", 99990, NEVER), ("put", "k", "v2", 99995, NEVER), ("put", "k", "v3", 199990, NEVER),
        ("put", "k", "v4", 199995, NEVER),
        ("versions", "k", MIN, MAX, [
            ("v4", 199995, NEVER), ("v3", 199990, 199995), ("v2", 99995, 199990), ("v1", 99990, 99995)
        ]),
    ],
    "should_not_get_expired_record_versions": [
        ("put", "k", "v_old", 0, NEVER), ("put", "k", "v", 99990, NEVER),
        ("versions", "k", 0, 99989, [("v_old", 0, 99990)]), ("put", "ko", "vo", 399989, NEVER),
        ("versions", "k", 0, 99989, [("v_old", 0, 99990)]), ("put", "ko", "vo2", 399990, NEVER),
        ("versions", "k", 0, 99989, []),
    ],
    "should_get_expired_if_latest_version_value": [
        ("put", "k", "v", 1, NEVER), ("put", "ko", "vo_old", 1, NEVER), ("put", "ko", "vo_new", 300012, NEVER),
        ("versions", "k", 0, 10, [("v", 1, NEVER)]), ("versions", "ko", 0, 10, []),
    ],
    "should_allow_zero_history_retention": [
        ("put", "k", "v", 10, NEVER), ("latest", "k", "v", 10), ("get", "k", 10, ("v", 10, NEVER)),
        ("get", "k", 11, ("v", 10, NEVER)), ("put", "k", "updated", 10, NEVER), ("latest", "k", "updated", 10),
        ("get", "k", 10, ("updated", 10, NEVER)), ("put", "k", "v2", 12, NEVER), ("latest", "k", "v2", 12),
        ("get", "k", 12, ("v2", 12, NEVER)), ("get", "k", 11, None), ("delete", "k", 13, ("v2", 12)),
        ("latest", "k", None, None), ("put", "k2", "v", 12, LATE), ("latest", "k2", None, None),
    ],
}
# fmt: on
