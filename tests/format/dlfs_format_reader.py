#!/usr/bin/env python3
"""Reads a DLFS volume by the rules of docs/format.md and nothing else: standard library only, slow, and strict.

    dlfs_format_reader.py VOLUME

prints a line of JSON a sample: id, name (in hex), and for each field its length and CRC32C. Raises Damaged where the document says that a
reader must refuse. Names are found by scanning the name blocks, so that no XXH3 is needed here.
"""

import json
import struct
import sys
from dataclasses import dataclass, field

ITEM_BYTES = [1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16]
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16",
          "float32", "float64", "complex64", "complex128"]


class Damaged(Exception):
    """The volume breaks a rule of the format."""


def require(condition, sentence):
    if not condition:
        raise Damaged(sentence)


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc_table()


def crc32c(data, previous=0):
    crc = previous ^ 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def round_up(value, unit):
    return -(-value // unit) * unit


def bits(value):
    return max(1, value.bit_length())


@dataclass
class Extent:
    offset: int
    length: int
    crc: int


@dataclass
class Superblock:
    volume_id: bytes
    generation: int
    state: int
    chunk_bytes: int
    salt: int
    sample_count: int
    device_bytes: int
    sections: dict


def decode_superblock(raw):
    require(raw[:8] == b"DLFSVOLM", "foreign: no magic")
    require(crc32c(raw[:4092]) == struct.unpack_from("<I", raw, 4092)[0], "superblock: crc")
    version, size, volume_id, generation, state, member, members, chunk_bytes, salt, zero, samples, device_bytes = (
        struct.unpack_from("<II16sQIIIIIIQQ", raw, 8))
    require(version == 1, f"version {version}")
    sections = {}
    for i, name in enumerate(["data", "names", "index", "schema"]):
        offset, length, crc, reserved = struct.unpack_from("<QQII", raw, 80 + 24 * i)
        sections[name] = Extent(offset, length, crc)
        zero |= reserved
    require(size == 4096 and zero == 0 and not any(raw[272:4092]), "superblock: reserved bytes")
    require(generation > 0 and state in (0, 1) and (member, members) == (0, 1), "superblock: values")
    require(chunk_bytes in [1 << i for i in range(16, 25)], "superblock: chunk_bytes")
    require(samples <= 1 << 32 and device_bytes <= 1 << 46 and device_bytes % 4096 == 0, "superblock: limits")
    if state == 1:
        end = 131072
        for name, section in sections.items():
            unit, step = {"data": (chunk_bytes, chunk_bytes), "names": (4096, 16384)}.get(name, (4096, 1))
            require(section.offset % unit == 0 and section.length % step == 0, f"superblock: {name}")
            require(section.length == 0 or section.offset >= end, f"superblock: {name} overlaps")
            end = max(end, section.offset + section.length)
        require(end <= device_bytes and 8 * samples <= sections["data"].length, "superblock: sections")
    return Superblock(volume_id, generation, state, chunk_bytes, salt, samples, device_bytes, sections)


@dataclass
class Field:
    name: str
    kind: int
    dtype: str
    shape: list
    fixed_bytes: int | None      # None: variable


@dataclass
class Schema:
    fields: list = field(default_factory=list)
    attributes: dict = field(default_factory=dict)


def decode_schema(raw):
    require(raw[:8] == b"DLFSSCHM" and crc32c(raw[:-4]) == struct.unpack("<I", raw[-4:])[0], "schema: magic or crc")
    version, length, field_count, attribute_count = struct.unpack_from("<IIII", raw, 8)
    require(version == 1 and length == len(raw) and 1 <= field_count <= 1024, "schema: header")
    schema, at = Schema(), 24
    for _ in range(field_count):
        kind, dtype, dimensions, name_bytes = raw[at:at + 4]
        name = raw[at + 4:at + 4 + name_bytes].decode()
        at += 4 + name_bytes
        shape = list(struct.unpack_from(f"<{dimensions}Q", raw, at))
        at += 8 * dimensions
        require(kind <= 2 and dtype < len(DTYPES) and (kind == 2 or (dtype == 0 and not shape)), "schema: field")
        size = ITEM_BYTES[dtype] if kind == 2 else None
        for dimension in shape:
            size *= dimension
        schema.fields.append(Field(name, kind, DTYPES[dtype] if kind == 2 else "", shape, size))
    for _ in range(attribute_count):
        key_bytes, value_bytes = struct.unpack_from("<II", raw, at)
        at += 8
        schema.attributes[raw[at:at + key_bytes].decode()] = raw[at + key_bytes:at + key_bytes + value_bytes]
        at += key_bytes + value_bytes
    require(at == len(raw) - 4, "schema: parts do not add up")
    require(len({f.name for f in schema.fields}) == field_count, "schema: names")
    require(len(schema.attributes) == attribute_count, "schema: attributes")
    return schema


class Packed:
    """`count` values of `width` bits each."""

    def __init__(self, raw, width, count):
        require(len(raw) == -(-count * width // 8) + 16 and not any(raw[-16:]), "index: a section's length")
        self.raw, self.width, self.count = raw, width, count

    def __getitem__(self, i):
        first = i * self.width
        piece = self.raw[first // 8:(first + self.width + 7) // 8]
        return int.from_bytes(piece, "little") >> first % 8 & (1 << self.width) - 1


class Index:
    SECTIONS = ["locations", "ids_by_slot", "unit_starts", "buckets", "names_by_hash", "name_blocks"]

    def __init__(self, raw, superblock):
        self.n = n = superblock.sample_count
        self.chunk_bytes, self.data_bytes = superblock.chunk_bytes, superblock.sections["data"].length
        require(len(raw) >= 256 and raw[:8] == b"DLFSINDX", "index: magic")
        require(crc32c(raw[:252]) == struct.unpack_from("<I", raw, 252)[0], "index: header crc")
        version, size, samples, self.units, blocks, data_bytes, chunk_bytes, salt = struct.unpack_from("<IIQQQQII", raw, 8)
        (self.align, self.large, self.address, self.length, self.id_bits, self.fingerprint, self.bucket_bits,
         starts) = raw[56:64]
        self.codes, flags = struct.unpack_from("<II", raw, 64)
        self.names = flags == 1
        require((version, size, samples, data_bytes, chunk_bytes, salt) ==
                (1, 256, n, self.data_bytes, superblock.chunk_bytes, superblock.salt), "index: not of this volume")
        require(flags <= 1 and not any(raw[72:96] + raw[240:252]) and self.id_bits == bits(max(0, n - 1)), "index: header")
        require(3 <= self.align and 12 <= self.large and self.fingerprint <= 16 and self.address <= 46, "index: widths")
        shapes = [(self.address + self.length, n), (self.id_bits, n), (1, n)]
        if self.names:
            shapes += [(starts, (1 << self.bucket_bits) + 1), (self.id_bits + self.fingerprint, n), (self.id_bits, blocks)]
        end = 256
        for i, name in enumerate(self.SECTIONS):
            offset, length, crc, reserved = struct.unpack_from("<QQII", raw, 96 + 24 * i)
            require(offset == round_up(end, 64) and reserved == 0 and not any(raw[end:offset]), f"index: place of {name}")
            end = offset + length
            section = raw[offset:end]
            require(len(section) == length and crc32c(section) == crc, f"index: crc of {name}")
            setattr(self, name, Packed(section, *shapes[i]) if i < len(shapes) else None)
            require(i < len(shapes) or length == 0, f"index: {name} without names")
        require(len(raw) == round_up(end, 64) and not any(raw[end:]), "index: length")
        self.check_placement()
        if self.names:
            self.check_names()

    def location(self, sample):
        """(address, length, large); the length of a large record is rounded up."""
        value = self.locations[sample]
        code, address = value & (1 << self.length) - 1, value >> self.length << self.align
        require(code > 0, f"index: sample {sample} has no length")
        return (address, code + 7, False) if code <= self.codes else (address, (code - self.codes) << self.large, True)

    def check_placement(self):
        free, last_chunk, units, chunk = 0, -1, 0, self.chunk_bytes
        for slot in range(self.n):
            sample = self.ids_by_slot[slot]
            require(sample < self.n, f"index: slot {slot} has no sample")
            address, length, large = self.location(sample)
            end = round_up(address + length, chunk) if large else address + length
            require(free <= address and end <= self.data_bytes, f"index: sample {sample} overlaps or leaves the data area")
            whole = address % chunk == 0 and length > chunk if large else address // chunk == (end - 1) // chunk
            require(whole, f"index: sample {sample} does not keep to chunks")
            require(self.unit_starts[slot] == (address // chunk != last_chunk), f"index: unit of slot {slot}")
            units += self.unit_starts[slot]
            free, last_chunk = end, (end - 1) // chunk
        require(units == self.units, "index: unit_count")

    def check_names(self):
        starts = [self.buckets[i] for i in range(self.buckets.count)]
        require(starts == sorted(starts) and starts[0] == 0 and starts[-1] == self.n, "index: buckets")
        require(sorted(self.names_by_hash[i] & (1 << self.id_bits) - 1 for i in range(self.n)) == list(range(self.n)),
                "index: names_by_hash does not hold every sample once")


class Volume:
    def __init__(self, path):
        self.path = path
        slots, reasons = [], []
        for offset in (0, 65536):
            try:
                slots.append(decode_superblock(self.read(offset, 4096)))
            except Damaged as error:
                reasons.append(str(error))
        require(slots, f"no valid superblock: {'; '.join(reasons)}")
        self.superblock = s = max(slots, key=lambda slot: (slot.generation, slot.state))
        require(s.state == 1, "incomplete: the pack was never committed")
        self.schema = decode_schema(self.section("schema"))
        self.index = Index(self.section("index"), s)
        order = [i for i, f in enumerate(self.schema.fields) if f.fixed_bytes is not None]
        self.variable = [i for i, f in enumerate(self.schema.fields) if f.fixed_bytes is None]
        self.media_order = order + self.variable
        self.block_cache = (None, None)

    def read(self, offset, length):
        with open(self.path, "rb") as file:
            file.seek(offset)
            raw = file.read(length)
        require(len(raw) == length, f"truncated at byte {offset}")
        return raw

    def section(self, name):
        extent = self.superblock.sections[name]
        raw = self.read(extent.offset, extent.length)
        require(crc32c(raw) == extent.crc, f"{name}: crc")
        return raw

    def __len__(self):
        return self.superblock.sample_count

    def split(self, record, start, end):
        """The fields of a record whose stored lengths begin at `start` and whose last field ends at `end`."""
        stored = struct.unpack_from(f"<{max(0, len(self.variable) - 1)}Q", record, start)
        at, values, left = start + 8 * len(stored), {}, list(stored)
        for i in self.media_order:
            at = round_up(at, 8)
            length = self.schema.fields[i].fixed_bytes
            if length is None:
                length = left.pop(0) if left else end - at
            require(0 <= length <= end - at, "record: lengths do not add up")
            values[i] = record[at:at + length]
            at += length
        require(at == end, "record: lengths do not add up")
        return [values[i] for i in range(len(values))]

    def __getitem__(self, sample):
        if not 0 <= sample < len(self):
            raise IndexError(sample)
        address, length, large = self.index.location(sample)
        record = self.read(self.superblock.sections["data"].offset + address, length)
        return self.large(record, sample) if large else self.ordinary(record, sample)

    def ordinary(self, record, sample):
        salted = struct.pack("<IQ", self.superblock.salt, len(record))
        crc, found = struct.unpack_from("<II", record)
        require(crc == crc32c(record[4:], crc32c(salted)) and found == sample, f"record of sample {sample}: crc or id")
        return self.split(record, 8, len(record))

    def large(self, record, sample):
        salt, chunk = struct.pack("<I", self.superblock.salt), self.superblock.chunk_bytes
        head = 16 + 8 * max(0, len(self.variable) - 1)
        crc, found, size = struct.unpack_from("<IIQ", record)
        require(crc == crc32c(record[4:head], crc32c(salt)) and found == sample, f"head of sample {sample}: crc or id")
        require(chunk < size <= len(record), f"head of sample {sample}: length")
        pieces = -(-(size - 4) // (chunk + 4))
        end = size - 4 * (pieces + 1)
        require(-(-end // chunk) == pieces, f"head of sample {sample}: length")
        *table, table_crc = struct.unpack_from(f"<{pieces + 1}I", record, end)
        prefix = salt + struct.pack("<IQ", sample, size)
        require(table_crc == crc32c(record[end:end + 4 * pieces], crc32c(prefix)), f"table of sample {sample}: crc")
        for i, expected in enumerate(table):
            require(crc32c(record[i * chunk:min((i + 1) * chunk, end)]) == expected, f"piece {i} of sample {sample}: crc")
        return self.split(record, 16, end)

    def name(self, sample):
        if not self.index.names:
            return b""
        firsts = [self.index.name_blocks[i] for i in range(self.index.name_blocks.count)]
        block = max(i for i, first in enumerate(firsts) if first <= sample)
        if self.block_cache[0] != block:
            self.block_cache = (block, self.name_block(block, firsts[block]))
        return self.block_cache[1][sample - firsts[block]]

    def name_block(self, block, expected_first):
        raw = self.read(self.superblock.sections["names"].offset + 16384 * block, 16384)
        magic, crc, first, count, reserved = struct.unpack_from("<4sIIHH", raw)
        salted = crc32c(struct.pack("<I", self.superblock.salt))
        require(magic == b"DLNB" and crc == crc32c(raw[8:], salted), f"name block {block}: crc")
        require(first == expected_first and count > 0 and reserved == 0, f"name block {block}: header")
        ends = struct.unpack_from(f"<{count}H", raw, 16)
        names = 16 + 2 * count
        require(list(ends) == sorted(ends) and names + ends[-1] <= 16384, f"name block {block}: ends")
        require(not any(raw[names + ends[-1]:]), f"name block {block}: bytes behind the names")
        return [raw[names + begin:names + end] for begin, end in zip((0, *ends), ends)]

    def find(self, name):
        """The id of the sample with this name, or None: a scan, without the hash."""
        return next((i for i in range(len(self)) if self.name(i) == name), None)


def main():
    volume = Volume(sys.argv[1])
    for sample in range(len(volume)):
        fields = [[len(value), f"{crc32c(value):08x}"] for value in volume[sample]]
        print(json.dumps({"id": sample, "name": volume.name(sample).hex(), "fields": fields}))


if __name__ == "__main__":
    main()
