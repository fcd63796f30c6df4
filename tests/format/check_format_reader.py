"""Volumes that DLFS packs, read by a reader that was written from docs/format.md alone, agree with DLFS sample by sample.

    check_format_reader.py PATH_OF_format_volume     (ctest runs it)
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import dlfs_format_reader as reader  # noqa: E402

KINDS = ["one_field", "many_fields", "large", "fixed", "empty", "single"]
TOOL = ""


def described(volume):
    return [{"id": i, "name": volume.name(i).hex(), "fields": [[len(v), f"{reader.crc32c(v):08x}"] for v in volume[i]]}
            for i in range(len(volume))]


class FormatReader(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def pack(self, kind):
        path = str(Path(self.folder.name) / f"{kind}.dlfs")
        subprocess.run([TOOL, "pack", kind, path], check=True)
        return path

    def test_crc32c_is_the_published_one(self):
        self.assertEqual(reader.crc32c(b"123456789"), 0xE3069283)

    def test_every_sample_is_what_dlfs_reads(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                path = self.pack(kind)
                printed = subprocess.run([TOOL, "print", path], check=True, capture_output=True, text=True).stdout
                expected = [json.loads(line) for line in printed.splitlines()]
                self.assertEqual(described(reader.Volume(path)), expected)
                self.assertEqual(len(expected), {"one_field": 700, "many_fields": 300, "large": 40, "fixed": 200,
                                                 "empty": 0, "single": 1}[kind])

    def test_names_are_found_and_absent_ones_are_not(self):
        volume = reader.Volume(self.pack("many_fields"))
        self.assertEqual(volume.find(volume.name(123)), 123)
        self.assertIsNone(volume.find(b"absent"))

    def test_schema_and_attributes(self):
        schema = reader.Volume(self.pack("many_fields")).schema
        self.assertEqual([f.name for f in schema.fields], ["caption", "label", "image", "mask", "box", "extra"])
        self.assertEqual((schema.fields[4].dtype, schema.fields[4].shape), ("float32", [4]))
        self.assertEqual(schema.attributes, {"classes": b"cat\0dog"})

    def test_large_records_were_among_them(self):
        volume = reader.Volume(self.pack("large"))
        large = [i for i in range(len(volume)) if volume.index.location(i)[2]]
        self.assertGreater(len(large), 3)
        self.assertLess(len(large), 30)

    def test_damage_is_refused(self):
        path = Path(self.pack("large"))
        good = path.read_bytes()
        superblock = reader.Volume(str(path)).superblock
        for name, section in superblock.sections.items():
            with self.subTest(section=name):
                damaged = bytearray(good)
                damaged[section.offset + 9] ^= 16
                path.write_bytes(damaged)
                with self.assertRaises(reader.Damaged):
                    described(reader.Volume(str(path)))
        path.write_bytes(good[:-4096])
        with self.assertRaises(reader.Damaged):
            described(reader.Volume(str(path)))
        one_slot = bytearray(good)
        one_slot[100] ^= 1
        path.write_bytes(one_slot)
        self.assertEqual(len(described(reader.Volume(str(path)))), 40)


if __name__ == "__main__":
    TOOL = sys.argv.pop(1)
    unittest.main()
