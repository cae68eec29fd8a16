CREATE INDEX past_names ON past_entries(volume, dir, seq, name, object);
CREATE TABLE snapshots(volume INTEGER NOT NULL, dir INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(volume, dir, seq)) WITHOUT ROWID;
CREATE TABLE snapshot_names(volume INTEGER NOT NULL, dir INTEGER NOT NULL, seq INTEGER NOT NULL, name BLOB NOT NULL, object INTEGER NOT NULL,
  PRIMARY KEY(volume, dir, seq, name)) WITHOUT ROWID;
CREATE TABLE tallies(volume INTEGER NOT NULL, dir INTEGER NOT NULL, names INTEGER NOT NULL, changes INTEGER NOT NULL, PRIMARY KEY(volume, dir)) WITHOUT ROWID;

-- What is there is counted, and directories in which much came and went get their first snapshot, after the newest commit.
INSERT INTO tallies SELECT volume, dir, 0, count(*) FROM past_entries GROUP BY volume, dir;
UPDATE tallies SET names = (SELECT count(*) FROM entries WHERE entries.volume = tallies.volume AND entries.dir = tallies.dir);
INSERT INTO snapshots SELECT volume, dir, head FROM tallies JOIN volumes USING(volume) WHERE changes > max(64, names);
INSERT INTO snapshot_names SELECT volume, dir, snapshots.seq, name, object FROM snapshots JOIN entries USING(volume, dir);
UPDATE tallies SET changes = 0 WHERE (volume, dir) IN (SELECT volume, dir FROM snapshots);
