"""Small true audio and video files: FLAC, WAV, MP3, Opus in Ogg, MP4, WebM."""

import io
import struct
import wave

_RATE_HZ = 8000
_SAMPLES = 256


def flac(digest: str) -> bytes:
    """One verbatim frame of 16-bit mono at 8 kHz, and a comment with the digest."""
    comment = _vorbis_comment(digest)
    info = struct.pack(">HH", _SAMPLES, _SAMPLES) + bytes(6)
    info += ((_RATE_HZ << 44) | (0 << 41) | (15 << 36) | _SAMPLES).to_bytes(8, "big") + bytes(16)
    head = b"fLaC" + b"\x00" + len(info).to_bytes(3, "big") + info
    head += b"\x84" + len(comment).to_bytes(3, "big") + comment
    # Fixed block size, 256 samples, 8 kHz, one channel, 16 bits, frame number 0.
    frame = bytes([0xFF, 0xF8, 0x84, 0x08, 0x00])
    frame += bytes([_crc(frame, bits=8, polynomial=0x07)])
    frame += b"\x02" + b"".join(struct.pack(">h", sample) for sample in _samples(digest))
    return head + frame + _crc(frame, bits=16, polynomial=0x8005).to_bytes(2, "big")


def wav(digest: str) -> bytes:
    """16-bit mono at 8 kHz."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE_HZ)
        file.writeframes(b"".join(struct.pack("<h", sample) for sample in _samples(digest)))
    return buffer.getvalue()


def mp3(digest: str) -> bytes:
    """Ten silent MPEG-1 layer III frames of 128 kbit/s at 44.1 kHz, with the digest in an ID3 tag."""
    text = b"\x00digest\x00" + digest.encode()
    frame = b"TXXX" + struct.pack(">I", len(text)) + b"\x00\x00" + text
    size = len(frame)
    tag = b"ID3\x03\x00\x00" + bytes((size >> shift) & 0x7F for shift in (21, 14, 7, 0)) + frame
    return tag + (b"\xff\xfb\x90\x64" + bytes(417 - 4)) * 10


def opus(digest: str) -> bytes:
    """An Ogg stream with the two Opus headers and one silent packet."""
    head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 312, 48000, 0, 0)
    note = f"digest={digest}".encode()
    tags = b"OpusTags" + struct.pack("<I", 4) + b"fake" + struct.pack("<II", 1, len(note)) + note
    pages = [(2, 0, head), (0, 0, tags), (4, 960, b"\xf8\xff\xfe")]
    return b"".join(
        _ogg_page(flags, granule, place, body) for place, (flags, granule, body) in enumerate(pages)
    )


def mp4(digest: str) -> bytes:
    """The boxes ftyp, moov with a movie header of one second, and mdat with the digest; no track."""
    unity = struct.pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    header = struct.pack(">IIIII", 0, 0, 0, 1000, 1000) + struct.pack(">IHH8x", 0x10000, 0x100, 0)
    header += unity + bytes(24) + struct.pack(">I", 1)
    start = _box(b"ftyp", b"isom\x00\x00\x02\x00isomiso2avc1mp41")
    return start + _box(b"moov", _box(b"mvhd", header)) + _box(b"mdat", digest.encode())


def webm(digest: str) -> bytes:
    """An EBML header of type webm and a segment with its information; no track."""
    kind = _ebml("4286", b"\x01") + _ebml("42f7", b"\x01") + _ebml("42f2", b"\x04") + _ebml("42f3", b"\x08")
    kind += _ebml("4282", b"webm") + _ebml("4287", b"\x02") + _ebml("4285", b"\x02")
    info = _ebml("2ad7b1", (1_000_000).to_bytes(3, "big")) + _ebml("4489", struct.pack(">d", 1000.0))
    info += _ebml("4d80", b"fake") + _ebml("5741", digest.encode())
    return _ebml("1a45dfa3", kind) + _ebml("18538067", _ebml("1549a966", info))


def _samples(digest: str) -> list[int]:
    seed = bytes.fromhex(digest)
    return [(seed[place % len(seed)] - 128) * 64 for place in range(_SAMPLES)]


def _vorbis_comment(digest: str) -> bytes:
    note = f"digest={digest}".encode()
    return struct.pack("<I", 4) + b"fake" + struct.pack("<II", 1, len(note)) + note


def _crc(data: bytes, *, bits: int, polynomial: int) -> int:
    value, top, mask = 0, 1 << (bits - 1), (1 << bits) - 1
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = ((value << 1) ^ polynomial if value & top else value << 1) & mask
    return value


def _ogg_page(flags: int, granule: int, place: int, body: bytes) -> bytes:
    head = b"OggS\x00" + struct.pack("<BQII", flags, granule, 1, place)
    table = bytes([1, len(body)])
    checksum = _crc(head + bytes(4) + table + body, bits=32, polynomial=0x04C11DB7)
    return head + struct.pack("<I", checksum) + table + body


def _box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(body), kind) + body


def _ebml(identifier: str, body: bytes) -> bytes:
    return bytes.fromhex(identifier) + (0x4000 | len(body)).to_bytes(2, "big") + body
