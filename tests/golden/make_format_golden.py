#!/usr/bin/env python3
"""Writes the golden bytes of the volume format beside this script. They are put together here by hand, field by field, from docs/format.md, without
any of DLFS's code, so that they pin the document and the program to each other. Run again only when the format gets a new version.
"""

import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "format"))
from dlfs_format_reader import bits, crc32c, round_up  # noqa: E402


def write(name, comment, raw):
    """32 bytes a line; a run of lines of zeros is written once, with a count: 00*N."""
    lines = [f"# {line}" for line in comment.strip().splitlines()]
    lines += ["# Made by make_format_golden.py from docs/format.md. Hex; 00*N stands for N zero bytes."]
    at = 0
    while at < len(raw):
        zeros = len(raw) - at - len(raw[at:].lstrip(b"\0"))
        if zeros >= 32:
            lines.append(f"00*{zeros}")
            at += zeros
        else:
            lines.append(raw[at:at + 32].hex(" ", 4))
            at += 32
    (HERE / f"{name}.hex").write_text("\n".join(lines) + "\n")


def extent(offset, length, crc):
    return struct.pack("<QQII", offset, length, crc, 0)


def superblock():
    raw = b"DLFSVOLM" + struct.pack("<II", 1, 4096) + bytes(range(0xA0, 0xB0))
    raw += struct.pack("<QIIIIII", 3, 1, 0, 1, 262144, 0xDEADBEEF, 0) + struct.pack("<QQ", 1000, 1355776)
    raw += extent(262144, 1048576, 0) + extent(1310720, 32768, 0)
    raw += extent(1343488, 5000, 0x11223344) + extent(1351680, 60, 0x55667788)
    raw += struct.pack("<QQQQ", 900000, 8000, 140576, 1790000000) + b"dlfs 0.1.0".ljust(64, b"\0")
    raw = raw.ljust(4092, b"\0")
    return raw + struct.pack("<I", crc32c(raw))


def schema():
    body = bytes([0, 0, 0, 5]) + b"image"
    body += bytes([2, 7, 0, 5]) + b"label"
    body += bytes([2, 2, 2, 4]) + b"mask" + struct.pack("<QQ", 256, 256)
    body += bytes([1, 0, 0, 7]) + b"caption"
    body += struct.pack("<II", 7, 7) + b"classes" + b"cat\0dog"
    body += struct.pack("<II", 6, 0) + b"source"
    raw = b"DLFSSCHM" + struct.pack("<IIII", 1, 24 + len(body) + 4, 4, 2) + body
    return raw + struct.pack("<I", crc32c(raw))


def record():
    body = struct.pack("<IQ", 7, 5) + struct.pack("<i", -2).ljust(8, b"\0") + struct.pack("<fff", 0.5, 1.0, -1.0).ljust(16, b"\0")
    body += b"hello".ljust(8, b"\0") + b"\xff\xd8\xff"
    return struct.pack("<I", crc32c(body, crc32c(struct.pack("<IQ", 0x5A175A17, len(body) + 4)))) + body


def name_block():
    names = [b"train/cat/1.jpg", b"", b"with space\nand newline", b"\xff\xfe"]
    ends, end = [], 0
    for name in names:
        end += len(name)
        ends.append(end)
    body = struct.pack("<IHH4H", 41, 4, 0, *ends) + b"".join(names)
    body = body.ljust(16384 - 8, b"\0")
    return b"DLNB" + struct.pack("<I", crc32c(body, crc32c(struct.pack("<I", 77)))) + body


def packed(values, width):
    total = sum(value << i * width for i, value in enumerate(values))
    return total.to_bytes(-(-len(values) * width // 8) + 16, "little")


def index():
    """Samples 0 to 4: slots 3, 1 | 0 (large, 70,000 bytes, 2 chunks) | 4, 2; chunks of 64 KiB, four in all."""
    chunk, data_bytes, salt = 65536, 4 * 65536, 99
    places = {3: (0, 1000), 1: (1000, 8), 0: (65536, 70000), 4: (196608, 2001), 2: (198616, 65536 - 2008)}
    hashes = [0x8000000000000000, 0x00FF000000000000, 0xFFFF000000000000, 0x0001000000000000, 0x00FF000000000000]
    codes = places[2][1] - 7                      # ordinary_codes: the longest ordinary record less 7
    large = -(-70000 // 4096)                     # large_shift 12
    address_bits, length_bits, id_bits = bits((65536 | 196608 | 198616 | 1000) >> 3), bits(codes + large), 3
    locations = [(places[i][0] >> 3) << length_bits | (codes + large if i == 0 else places[i][1] - 7) for i in range(5)]
    by_hash = sorted(range(5), key=lambda i: (hashes[i], i))
    sections = [packed(locations, address_bits + length_bits), packed([3, 1, 0, 4, 2], id_bits), packed([1, 0, 1, 1, 0], 1),
                packed([0, 5], bits(5)), packed([(hashes[i] >> 48) << id_bits | i for i in by_hash], id_bits + 16),
                packed([0, 3], id_bits)]
    body, entries = b"", b""
    for section in sections:
        body = body.ljust(round_up(len(body), 64), b"\0")
        entries += struct.pack("<QQII", 256 + len(body), len(section), crc32c(section), 0)
        body += section
    header = b"DLFSINDX" + struct.pack("<IIQQQQII", 1, 256, 5, 3, 2, data_bytes, chunk, salt)
    header += bytes([3, 12, address_bits, length_bits, id_bits, 16, 0, bits(5)]) + struct.pack("<II", codes, 1)
    header = (header.ljust(96, b"\0") + entries).ljust(252, b"\0")
    return header + struct.pack("<I", crc32c(header)) + body.ljust(round_up(len(body), 64), b"\0")


write("superblock", "A committed superblock of generation 3: 1000 samples, chunks of 256 KiB, names.", superblock())
write("schema", "image: bytes, label: int64, mask: uint8[256,256], caption: text; attributes classes = cat NUL dog, source = (empty).", schema())
write("record", "Sample 7 of the example in docs/format.md, salt 0x5A175A17: caption 'hello', label -2, image ff d8 ff, box 0.5 1 -1.", record())
write("name_block", "The names of ids 41 to 44, one of them empty, one not UTF-8; salt 77.", name_block())
write("index", index.__doc__ + "\nNames in 2 blocks; two names share a hash. Salt 99.", index())
