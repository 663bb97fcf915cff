"""Tables of the sandbox file, and the version that is written into it."""

from __future__ import annotations

from sqlite3 import Connection

APPLICATION_ID = 0x67707276
"""Marks a SQLite file as a gpuprov sandbox (``gprv``)."""

VERSION = 3
"""Raised with every change of the tables. A newer file is refused by name; an older one gets what it lacks."""

TABLES = {
    "settings": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    # One row for ever per machine: the bill and spent tokens need machines that are gone.
    "instances": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, cloud TEXT NOT NULL, region TEXT NOT NULL,
        zone TEXT NOT NULL, instance_type TEXT NOT NULL, capacity_type TEXT NOT NULL, name TEXT NOT NULL,
        state TEXT NOT NULL, token TEXT NOT NULL, image TEXT NOT NULL, user_data TEXT NOT NULL, security_group TEXT,
        stop_on_shutdown INTEGER NOT NULL, root_volume_id TEXT NOT NULL, root_volume_bytes INTEGER NOT NULL,
        tags TEXT NOT NULL, private_ip TEXT NOT NULL, public_ip TEXT, has_local_disk INTEGER NOT NULL,
        quota_code TEXT, quota_units TEXT NOT NULL, gpus TEXT NOT NULL,
        compute_rate TEXT, root_rate TEXT, ip_rate TEXT,
        created_us INTEGER NOT NULL, visible_us INTEGER NOT NULL, next_us INTEGER, running_us INTEGER,
        expires_us INTEGER, reclaim_us INTEGER, ended_us INTEGER, vanished INTEGER NOT NULL, due_us INTEGER,
        root_iops INTEGER, root_mib_per_s INTEGER, node TEXT
    """,
    "volumes": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, cloud TEXT NOT NULL, region TEXT NOT NULL,
        zone TEXT NOT NULL, name TEXT NOT NULL, size_bytes INTEGER NOT NULL, tags TEXT NOT NULL,
        attached_to TEXT, byte_rate TEXT, created_us INTEGER NOT NULL, visible_us INTEGER NOT NULL,
        ended_us INTEGER, iops INTEGER, mib_per_s INTEGER, speed_rate TEXT
    """,
    "security_groups": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, cloud TEXT NOT NULL, region TEXT NOT NULL,
        tags TEXT NOT NULL, rules TEXT NOT NULL, created_us INTEGER NOT NULL, ended_us INTEGER
    """,
    "tokens": """
        cloud TEXT NOT NULL, region TEXT NOT NULL, kind TEXT NOT NULL, token TEXT NOT NULL, digest TEXT NOT NULL,
        object_id TEXT NOT NULL, PRIMARY KEY (cloud, region, kind, token)
    """,
    # An interval in which an object bills at one rate (USD an hour as an exact fraction, NULL: the price is unknown).
    "spans": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT, object_id TEXT NOT NULL, kind TEXT NOT NULL, owner_id TEXT NOT NULL,
        rate TEXT, started_us INTEGER NOT NULL, ended_us INTEGER
    """,
    "capacities": "seq INTEGER PRIMARY KEY AUTOINCREMENT, pool TEXT NOT NULL UNIQUE, instances INTEGER",
    "quotas": """
        cloud TEXT NOT NULL, region TEXT NOT NULL, code TEXT NOT NULL, units TEXT NOT NULL,
        PRIMARY KEY (cloud, region, code)
    """,
    "faults": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, operation TEXT NOT NULL, pool TEXT NOT NULL,
        skip INTEGER NOT NULL, remaining INTEGER
    """,
    "telemetry": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT, instance_id TEXT NOT NULL, at_us INTEGER NOT NULL, signals TEXT NOT NULL
    """,
    # What the status checks of a machine and the events that its cloud has announced say, set by hand.
    "health": """
        instance_id TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, not_before_us INTEGER,
        PRIMARY KEY (instance_id, kind)
    """,
    "console": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT, instance_id TEXT NOT NULL, at_us INTEGER NOT NULL, line TEXT NOT NULL
    """,
    "calls": """
        id INTEGER PRIMARY KEY AUTOINCREMENT, at_us INTEGER NOT NULL, operation TEXT NOT NULL, place TEXT,
        token TEXT, object_id TEXT, outcome TEXT NOT NULL, effect TEXT NOT NULL, pid INTEGER NOT NULL
    """,
}

ADDED = {
    1: (
        "ALTER TABLE instances ADD COLUMN root_iops INTEGER",
        "ALTER TABLE instances ADD COLUMN root_mib_per_s INTEGER",
        "ALTER TABLE volumes ADD COLUMN iops INTEGER",
        "ALTER TABLE volumes ADD COLUMN mib_per_s INTEGER",
        "ALTER TABLE volumes ADD COLUMN speed_rate TEXT DEFAULT '0'",
        f"CREATE TABLE health ({TABLES['health']})",
    ),
    2: (
        # What runs on a machine is played from its next start on.
        "ALTER TABLE instances ADD COLUMN node TEXT",
        # That its workload answers was made up at each reading; now it is a line like any other.
        r"""
        INSERT INTO console (instance_id, at_us, line) SELECT id, running_us,
        '{"gpuprov": 1, "at": "' || strftime('%Y-%m-%dT%H:%M:%SZ', running_us / 1000000, 'unixepoch')
        || '", "state": "ready"}' FROM instances WHERE state = 'running' AND user_data LIKE '%\"ready\": {%'
        """,
    ),
}
"""What a file of each earlier version lacks."""

INDEXES = (
    "CREATE INDEX instances_due ON instances (due_us) WHERE due_us IS NOT NULL",
    "CREATE INDEX instances_place ON instances (cloud, region, state)",
    "CREATE INDEX volumes_place ON volumes (cloud, region)",
    "CREATE INDEX volumes_attached ON volumes (attached_to) WHERE attached_to IS NOT NULL",
    "CREATE INDEX spans_object ON spans (object_id, kind)",
    "CREATE INDEX spans_open ON spans (object_id) WHERE ended_us IS NULL",
    "CREATE INDEX telemetry_instance ON telemetry (instance_id, at_us)",
    "CREATE INDEX console_instance ON console (instance_id)",
)


def create(connection: Connection) -> None:
    """Make all tables in an empty file, inside the caller's transaction."""
    for name, columns in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")
    for index in INDEXES:
        connection.execute(index)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")


def upgrade(connection: Connection) -> None:
    """Give a file of an earlier version what it lacks, inside the caller's transaction; what bills in it bills on as before."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    for missing in range(version, VERSION):
        for statement in ADDED[missing]:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={VERSION}")


def clear(connection: Connection) -> None:
    """Delete every row of every table, inside the caller's transaction; settings and numbering start afresh."""
    for name in TABLES:
        connection.execute(f"DELETE FROM {name}")  # noqa: S608 - names come from the table above
    connection.execute("DELETE FROM sqlite_sequence")
