#!/usr/bin/env python3
"""Writes cases.bin.gz: small pictures of many kinds, and what Pillow makes of them (Image.open(f).convert('RGB')).

    pip install pillow==13.0.0 && python3 tests/data/picture_cases/make.py    (and cjpeg of libjpeg-turbo)

A case is: name, verdict, file, and for pictures that are read width, height and their RGB bytes. Verdicts:
  equal    Pillow reads it: the same values are wanted
  refused  Pillow refuses it: so must we
  strict   Pillow makes pixels up where the file has lost them, or reads a form that we do not: refused by name
  grey16   Pillow clips 16-bit greyscale at 255: value >> 8 is wanted, as of every other 16-bit picture
Form: for each case u16 length and bytes of the name, u8 verdict (0 to 3), u32 length and bytes of the file, u16 width,
u16 height, RGB bytes; all numbers big-endian.
"""
import gzip
import io
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

from PIL import Image

warnings.simplefilter('ignore')
EQUAL, REFUSED, STRICT, GREY16 = range(4)
cases = []


def pillow(data):
    """(width, height, bytes), or None if Pillow refuses the file."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            rgb = image.convert('RGB')
            return rgb.width, rgb.height, rgb.tobytes()
    except Exception:  # Pillow raises exceptions of many types
        return None


def add(name, data, strict=False, values=None):
    """strict: we refuse the file although Pillow reads it. values: the wanted values, instead of Pillow's."""
    got = pillow(data)
    if strict:
        assert got is not None, f'{name}: Pillow refuses it'
        cases.append((name, STRICT, data, None))
    elif values is not None:
        cases.append((name, GREY16, data, values))
    else:
        cases.append((name, REFUSED if got is None else EQUAL, data, got))


# ---- PNG, written byte by byte

SIGNATURE = b'\x89PNG\r\n\x1a\n'
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, data=b'', crc=None):
    checksum = zlib.crc32(kind + data) if crc is None else crc
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', checksum)


def noise(count, top):
    """Numbers from 0 to top (both occur), the same in every run."""
    state, values = 12345, []
    for i in range(count):
        state = (state * 1103515245 + 12345) & 0x7fffffff
        values.append((0, top)[i % 2] if i < 4 else (state >> 8) % (top + 1))
    return values


def line(values, bits):
    if bits == 16:
        return struct.pack(f'>{len(values)}H', *values)
    if bits == 8:
        return bytes(values)
    text = ''.join(format(v, f'0{bits}b') for v in values)
    text += '0' * (-len(text) % 8)
    return bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))


def paeth(a, b, c):
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def filtered(lines, step, kinds):
    """The lines after filtering. Each line uses the next filter in `kinds`."""
    out, above = b'', bytes(len(lines[0])) if lines else b''
    for y, now in enumerate(lines):
        kind = kinds[y % len(kinds)]
        row = bytearray()
        for x, v in enumerate(now):
            a = now[x - step] if x >= step else 0
            b = above[x]
            c = above[x - step] if x >= step else 0
            row.append((v - (0, a, b, (a + b) // 2, paeth(a, b, c))[kind if kind < 5 else 0]) & 255)
        out += bytes([kind]) + bytes(row)
        above = now
    return out


class Png:
    """The parts of a PNG file. A case can replace any of them."""

    def __init__(self, bits, colour, interlace=0, width=9, height=7, values=None, filters=(0, 1, 2, 3, 4), top=None):
        n = CHANNELS[colour]
        if values is None:
            values = noise(width * height * n, (1 << bits) - 1 if top is None else top)
        step = max(1, bits * n // 8)
        self.raw = b''
        for left, top_, across, down in PASSES if interlace else [(0, 0, 1, 1)]:
            lines = []
            for y in range(top_, height, down):
                pixels = [v for x in range(left, width, across) for v in values[(y * width + x) * n:][:n]]
                if pixels:
                    lines.append(line(pixels, bits))
            self.raw += filtered(lines, step, filters)
        self.header = [width, height, bits, colour, 0, 0, interlace]
        self.values, self.size = values, (width, height)
        self.before = [chunk(b'PLTE', self.palette(1 << bits))] if colour == PALETTE else []

    @staticmethod
    def palette(count):
        return bytes(v for i in range(count) for v in (i * 7 % 256, 255 - i * 5 % 256, i * 11 % 256))

    def head(self):
        return SIGNATURE + chunk(b'IHDR', struct.pack('>IIBBBBB', *self.header)) + b''.join(self.before)

    def data(self, idat=None, end=chunk(b'IEND')):
        return self.head() + (chunk(b'IDAT', zlib.compress(self.raw, 9)) if idat is None else idat) + end

    def with_(self, *chunks):
        self.before += chunks
        return self

    def high_bytes(self):
        """16-bit grey values as RGB bytes of value >> 8."""
        return *self.size, bytes(v >> 8 for v in self.values for _ in range(3))


def add_grey16(name, png):
    add(name, png.data(), values=png.high_bytes())


def depths_and_colours():
    for interlace in (0, 1):
        word = ' interlaced' if interlace else ''
        for bits in (1, 2, 4, 8):
            add(f'png grey {bits}{word}', Png(bits, GREY, interlace).data())
            add(f'png palette {bits}{word}', Png(bits, PALETTE, interlace).data())
        add_grey16(f'png grey 16{word}', Png(16, GREY, interlace))
        for bits in (8, 16):
            add(f'png rgb {bits}{word}', Png(bits, RGB, interlace).data())
            add(f'png grey+alpha {bits}{word}', Png(bits, GREY_ALPHA, interlace).data())
            add(f'png rgba {bits}{word}', Png(bits, RGBA, interlace).data())
    for width, height in ((1, 1), (1, 9), (2, 3), (5, 1), (33, 2), (8, 8)):
        add(f'png grey 1 interlaced {width}x{height}', Png(1, GREY, 1, width, height).data())
        add(f'png rgb 8 interlaced {width}x{height}', Png(8, RGB, 1, width, height).data())
    ramp = [8 * x for x in range(32)] * 2
    add_grey16('png grey 16 ramp', Png(16, GREY, 0, 32, 2, [257 * v for v in ramp]))
    add('png rgb 16 ramp', Png(16, RGB, 0, 32, 2, [257 * v for v in ramp for _ in range(3)]).data())
    add('png rgb 16 low bytes', Png(16, RGB, 0, 8, 1, [v for x in range(8) for v in (255, 128 + 256 * x, 0x7fff)]).data())


def colour_chunks():
    gamma = [chunk(b'gAMA', struct.pack('>I', v)) for v in (45455, 100000, 22727)]
    srgb = chunk(b'sRGB', b'\0')
    chrm = chunk(b'cHRM', struct.pack('>8I', 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000))
    iccp = chunk(b'iCCP', b'profile\0\0' + zlib.compress(b'\0\0\0\x84' + bytes(128)))
    for i, text in enumerate(('0.45', '1.0', '0.23')):
        add(f'png gamma {text} grey 8', Png(8, GREY).with_(gamma[i]).data())
        add(f'png gamma {text} rgb 16', Png(16, RGB).with_(gamma[i]).data())
        add_grey16(f'png gamma {text} grey 16', Png(16, GREY).with_(gamma[i]))
        add(f'png gamma {text} rgba 8', Png(8, RGBA).with_(gamma[i]).data())
    palette = Png(8, PALETTE)
    palette.before.insert(0, gamma[1])
    add('png gamma 1.0 palette 8', palette.data())
    add('png sRGB rgb 8', Png(8, RGB).with_(srgb).data())
    add_grey16('png sRGB grey 16', Png(16, GREY).with_(srgb))
    add('png cHRM and gamma', Png(8, RGB).with_(gamma[0], chrm).data())
    add('png iCCP', Png(8, RGB).with_(iccp).data())
    add('png iCCP damaged', Png(8, RGB).with_(chunk(b'iCCP', b'p\0\0damaged')).data())
    add('png sBIT', Png(8, RGB).with_(chunk(b'sBIT', b'\5\6\5')).data())
    add('png sBIT grey 16', Png(16, GREY_ALPHA).with_(chunk(b'sBIT', b'\x0c\x0c')).data())
    add('png background rgba', Png(8, RGBA).with_(chunk(b'bKGD', struct.pack('>3H', 255, 0, 0))).data())
    add('png background palette', Png(8, PALETTE).with_(chunk(b'bKGD', b'\3')).data())


def transparency():
    add('png tRNS grey 1', Png(1, GREY).with_(chunk(b'tRNS', b'\0\1')).data())
    add('png tRNS grey 8', Png(8, GREY).with_(chunk(b'tRNS', b'\0\xff')).data())
    add_grey16('png tRNS grey 16', Png(16, GREY).with_(chunk(b'tRNS', b'\xff\xff')))
    add('png tRNS rgb 8', Png(8, RGB).with_(chunk(b'tRNS', struct.pack('>3H', 0, 255, 0))).data())
    add('png tRNS rgb 16', Png(16, RGB).with_(chunk(b'tRNS', struct.pack('>3H', 0, 65535, 0))).data())
    add('png tRNS palette 1 entry', Png(8, PALETTE).with_(chunk(b'tRNS', b'\xff\xff\0')).data())
    add('png tRNS palette half', Png(8, PALETTE).with_(chunk(b'tRNS', bytes(range(128)))).data())
    add('png tRNS palette 4 full', Png(4, PALETTE).with_(chunk(b'tRNS', bytes(range(0, 256, 16)))).data())
    add('png tRNS palette interlaced', Png(2, PALETTE, 1).with_(chunk(b'tRNS', b'\0\x80')).data())
    add('png tRNS too short', Png(8, RGB).with_(chunk(b'tRNS', b'\0\1')).data())
    add('png tRNS with alpha', Png(8, RGBA).with_(chunk(b'tRNS', b'\0\1\0\1\0\1')).data())
    add('png rgba clear all over', Png(8, RGBA, 0, 4, 4, [200, 100, 50, 0] * 16).data())
    add('png rgba half clear', Png(8, RGBA, 0, 4, 4, [200, 100, 50, 128] * 16).data())


def palettes():
    short = Png(8, PALETTE, top=40)
    short.before = [chunk(b'PLTE', Png.palette(41))]
    add('png palette of 41', short.data())
    for bits, count in ((8, 10), (4, 3), (1, 1)):
        outside = Png(bits, PALETTE)
        outside.before = [chunk(b'PLTE', Png.palette(count))]
        add(f'png palette {bits} of {count}, pixels outside of it', outside.data())
    none = Png(8, PALETTE)
    none.before = []
    add('png palette missing', none.data(), strict=pillow(none.data()) is not None)
    empty = Png(8, PALETTE)
    empty.before = [chunk(b'PLTE')]
    add('png palette empty', empty.data(), strict=pillow(empty.data()) is not None)
    odd = Png(8, PALETTE)
    odd.before = [chunk(b'PLTE', Png.palette(256)[:-1])]
    add('png palette odd length', odd.data(), strict=pillow(odd.data()) is not None)
    many = Png(4, PALETTE)
    many.before = [chunk(b'PLTE', Png.palette(17))]
    add('png palette 4 of 17', many.data())
    add('png rgb with a suggested palette', Png(8, RGB).with_(chunk(b'PLTE', Png.palette(20))).data())
    add('png grey with a palette', Png(8, GREY).with_(chunk(b'PLTE', Png.palette(20))).data())


def ends_and_damage():
    png = Png(8, RGB)
    whole = png.data()
    packed = zlib.compress(png.raw, 9)
    add('png no IEND', png.data(end=b''))
    add('png IEND cut', whole[:-6])
    add('png junk behind the end', whole + b'junk' * 20)
    add('png zeros behind the end', whole + bytes(64))
    at = len(png.head())
    for keep, word in ((1, 'its first byte'), (len(packed) // 2, 'half'), (len(packed) - 5, 'nearly all'),
                       (len(packed) - 4, 'all but the checksum'), (len(packed), 'all'), (len(packed) + 2, 'more than all')):
        add(f'png cut behind {word} of the pixels', whole[:at + 8 + keep])
        laced = Png(8, RGB, 1)
        add(f'png interlaced cut behind {word} of the pixels',
            laced.data()[:at + 8 + keep - len(packed) + len(zlib.compress(laced.raw, 9))])
    for less in range(1, 21, 3):
        add(f'png grey 1 cut by {less} bytes', Png(1, GREY).data()[:-less])
    add('png cut in the header', whole[:20])
    add('png cut behind the header', whole[:at])
    add('png signature alone', SIGNATURE)
    add('png wrong checksum of IHDR', whole[:29] + b'\0\0\0\0' + whole[33:])
    add('png wrong checksum of IDAT', png.data(chunk(b'IDAT', packed, 1)))
    add('png wrong checksum of a text', Png(8, RGB).with_(chunk(b'tEXt', b'a\0b', 1)).data())
    add('png wrong checksum of the palette', Png(8, RGB).with_(chunk(b'PLTE', Png.palette(4), 1)).data())
    add('png wrong checksum of IEND', png.data(end=chunk(b'IEND', b'', 1)))
    damaged = bytearray(packed)
    damaged[-1] ^= 1
    bad = png.data(chunk(b'IDAT', bytes(damaged)))
    add('png wrong Adler checksum', bad, strict=pillow(bad) is not None)
    add('png no Adler checksum', png.data(chunk(b'IDAT', packed[:-4])))
    stored = bytearray(zlib.compress(png.raw, 0))
    add('png stored', png.data(chunk(b'IDAT', bytes(stored))))
    stored[30] ^= 0x40
    bad = png.data(chunk(b'IDAT', bytes(stored)))
    add('png a flipped bit, right outer checksum', bad, strict=pillow(bad) is not None)
    damaged = bytearray(packed)
    damaged[len(damaged) // 2] ^= 0x55
    add('png damaged data', png.data(chunk(b'IDAT', bytes(damaged))))
    add('png too few lines', png.data(chunk(b'IDAT', zlib.compress(png.raw[:-28]))), strict=True)
    add('png too few bytes in a line', png.data(chunk(b'IDAT', zlib.compress(png.raw[:-3]))))
    add('png too many lines', png.data(chunk(b'IDAT', zlib.compress(png.raw + b'\0' * 56))))
    add('png unknown filter', Png(8, RGB, filters=(0, 7)).data())
    add('png unknown filter in the last line', Png(8, RGB, filters=(0, 0, 0, 0, 0, 0, 7)).data())
    add('png data in many parts', png.data(b''.join(chunk(b'IDAT', packed[i:i + 3]) for i in range(0, len(packed), 3))))
    add('png empty parts of data', png.data(chunk(b'IDAT') + chunk(b'IDAT', packed) + chunk(b'IDAT')))
    bad = png.data(chunk(b'IDAT', packed[:20]) + chunk(b'tEXt', b'a\0b') + chunk(b'IDAT', packed[20:]))
    add('png a text between the data', bad)
    add('png no data', png.data(b''))
    add('png small window', png.data(chunk(b'IDAT', (lambda z: z.compress(png.raw) + z.flush())(
        zlib.compressobj(9, zlib.DEFLATED, 9)))))
    add('png unknown chunk', Png(8, RGB).with_(chunk(b'prVt', b'abc')).data())
    bad = Png(8, RGB).with_(chunk(b'PRVT', b'abc')).data()
    add('png unknown chunk that is critical', bad)
    bad = Png(8, RGB).with_(chunk(b'\x01\x02\x03\x04', b'abc')).data()
    add('png chunk of no letters', bad)
    add('png text, time, size in metres', Png(8, RGB).with_(
        chunk(b'tEXt', b'Title\0x'), chunk(b'zTXt', b'Title\0\0' + zlib.compress(b'x')),
        chunk(b'iTXt', b'Title\0\0\0\0\0x'), chunk(b'tIME', b'\x07\xe8\1\1\1\1\1'),
        chunk(b'pHYs', b'\0\0\x0b\x13\0\0\x0b\x13\1'), chunk(b'eXIf', b'MM\0\x2a\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0')).data())
    for place, value, word in ((0, 0, 'width 0'), (2, 3, 'depth 3'), (2, 16, 'palette 16'), (3, 5, 'colour type 5'),
                               (4, 1, 'compression 1'), (5, 1, 'filter method 1'), (6, 2, 'interlace 2')):
        odd = Png(8, PALETTE if value == 16 else RGB)
        odd.header[place] = value
        data = odd.data()
        add(f'png header with {word}', data, strict=pillow(data) is not None)
    add('png with line ends changed', whole.replace(b'\r\n', b'\n', 1))
    two = png.head() + chunk(b'IDAT', packed)
    add('png animated', png.head() + chunk(b'acTL', struct.pack('>II', 2, 0)) +
        chunk(b'fcTL', struct.pack('>IIIIIHHBB', 0, 9, 7, 0, 0, 1, 10, 0, 0)) + two[at:] +
        chunk(b'fcTL', struct.pack('>IIIIIHHBB', 1, 9, 7, 0, 0, 1, 10, 0, 0)) +
        chunk(b'fdAT', struct.pack('>I', 2) + zlib.compress(Png(8, RGB, values=[9] * 189).raw)) + chunk(b'IEND'))


# ---- JPEG

def photo(mode, width=19, height=13):
    """Smooth colours with an edge, so that subsampling and a wrong conversion show."""
    count = len(mode)
    values = bytearray()
    for y in range(height):
        for x in range(width):
            edge = 90 if (x // 5 + y // 4) % 2 else 0
            values += bytes(((x * (5 + 3 * c) + y * (9 - 2 * c) + edge + 40 * c) % 256) for c in range(count))
    return Image.frombytes({'L': 'L', 'RGB': 'RGB', 'CMYK': 'CMYK'}[mode], (width, height), bytes(values))


def jpeg(mode='RGB', width=19, height=13, **options):
    out = io.BytesIO()
    photo(mode, width, height).save(out, 'JPEG', **{'quality': 90, **options})
    return out.getvalue()


def segments(data):
    """[(marker, whole segment)]. The last segment, SOS, contains the rest of the file."""
    parts, at = [], 2
    while True:
        marker = data[at + 1]
        if marker == 0xda:
            return parts + [(marker, data[at:])]
        size = 2 + struct.unpack('>H', data[at + 2:at + 4])[0]
        parts.append((marker, data[at:at + size]))
        at += size


def joined(parts):
    return b'\xff\xd8' + b''.join(part for _, part in parts)


def without(data, *markers):
    return joined([p for p in segments(data) if p[0] not in markers])


def changed(data, marker, change):
    return joined([(m, bytes(change(bytearray(part)) or b'')) if m == marker else (m, part) for m, part in segments(data)])


def put(at, *values):
    def change(part):
        part[at:at + len(values)] = bytes(values)
        return part
    return change


def in_front(data, *parts):
    return b'\xff\xd8' + b''.join(parts) + data[2:]


def adobe(transform):
    return b'\xff\xee\0\x0eAdobe\0\x64\0\0\0\0' + bytes([transform])


def jpeg_kinds():
    add('jpeg grey', jpeg('L'))
    for name, sampling in (('444', 0), ('422', 1), ('420', 2)):
        add(f'jpeg {name}', jpeg(subsampling=sampling))
        add(f'jpeg {name} progressive', jpeg(subsampling=sampling, progressive=True))
    add('jpeg 440', changed(jpeg(subsampling=0), 0xc0, put(11, 0x12)), strict=False)
    add('jpeg grey progressive', jpeg('L', progressive=True))
    add('jpeg optimised', jpeg(optimize=True))
    add('jpeg coarse', jpeg(quality=5))
    add('jpeg quality 100', jpeg(quality=100))
    for width, height in ((1, 1), (8, 8), (16, 16), (17, 1), (1, 17), (32, 32)):
        add(f'jpeg {width}x{height}', jpeg(width=width, height=height))
    add('jpeg restart after each block', jpeg(restart_marker_blocks=1))
    add('jpeg restart after each row', jpeg(restart_marker_rows=1, height=32))
    add('jpeg restart, progressive', jpeg(restart_marker_blocks=2, progressive=True))
    cmyk = jpeg('CMYK')
    add('jpeg cmyk adobe', cmyk)
    add('jpeg cmyk without adobe', without(cmyk, 0xee))
    add('jpeg cmyk progressive', jpeg('CMYK', progressive=True))
    add('jpeg cmyk adobe progressive restart', jpeg('CMYK', progressive=True, restart_marker_blocks=1))
    add('jpeg ycck', in_front(without(cmyk, 0xee), adobe(2)))
    add('jpeg four components, adobe transform 1', in_front(without(cmyk, 0xee), adobe(1)))
    add('jpeg four components, adobe transform 7', in_front(without(cmyk, 0xee), adobe(7)))
    rgb = jpeg(subsampling=0)
    bare = without(rgb, 0xe0)
    add('jpeg without JFIF', bare)
    add('jpeg rgb adobe 0', in_front(bare, adobe(0)))
    add('jpeg adobe 1', in_front(bare, adobe(1)))
    add('jpeg adobe 2 of three', in_front(bare, adobe(2)))
    add('jpeg adobe 9 of three', in_front(bare, adobe(9)))
    add('jpeg JFIF and adobe 0', in_front(rgb, adobe(0)))
    def letters(part, ids=b'RGB', first=10, step=3):
        for i, c in enumerate(ids):
            part[first + step * i] = c
        return part
    named = changed(changed(bare, 0xc0, letters), 0xda, lambda p: letters(p, first=5, step=2))
    add('jpeg components R G B', named)
    zero = changed(changed(bare, 0xc0, lambda p: letters(p, b'\0\1\2')), 0xda, lambda p: letters(p, b'\0\1\2', 5, 2))
    add('jpeg components 0 1 2', zero)
    add('jpeg kept in RGB', jpeg(keep_rgb=True))
    add('jpeg JFIF 9', changed(rgb, 0xe0, put(9, 9)))
    exif = b'Exif\0\0MM\0\x2a\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0'
    add('jpeg turned by exif', jpeg(exif=exif))
    thumbnail = jpeg(width=8, height=8)
    add('jpeg with a jpeg in its APP1', in_front(rgb, b'\xff\xe1' + struct.pack('>H', 2 + len(thumbnail)) + thumbnail))
    add('jpeg comment', jpeg(comment=b'a comment'))
    add('jpeg ICC profile', jpeg(icc_profile=bytes(200)))


def jpeg_odd_headers():
    rgb = jpeg()
    add('jpeg zeros for the spectral range', changed(rgb, 0xda, put(11, 0, 0, 0)))
    add('jpeg other spectral range', changed(rgb, 0xda, put(11, 1, 9, 0)))
    add('jpeg 12 bits', changed(rgb, 0xc0, put(4, 12)))
    add('jpeg 7 bits', changed(rgb, 0xc0, put(4, 7)))
    add('jpeg height 0', changed(rgb, 0xc0, put(5, 0, 0)))
    add('jpeg width 0', changed(rgb, 0xc0, put(7, 0, 0)))
    add('jpeg extended sequential', changed(rgb, 0xc0, put(1, 0xc1)))
    lossless = changed(rgb, 0xc0, put(1, 0xc3))
    add('jpeg lossless', lossless)
    add('jpeg hierarchical', changed(rgb, 0xc0, put(1, 0xc5)))
    two = changed(changed(jpeg('L'), 0xc0, lambda p: b'\xff\xc0\0\x0e' + p[4:9] + b'\2\1\x11\0\2\x11\0'), 0xda,
                  lambda p: b'\xff\xda\0\x0a\2\1\0\2\0' + p[7:])
    add('jpeg two components', two)
    add('jpeg without tables', without(rgb, 0xc4))
    add('jpeg without quantisation', without(rgb, 0xdb))
    add('jpeg without frame', without(rgb, 0xc0))
    parts = segments(rgb)
    add('jpeg fill bytes before markers', joined([(m, b'\xff' * 3 + p) for m, p in parts]))
    add('jpeg zeros between segments', joined([(m, (b'' if i == 0 else bytes(5)) + p) for i, (m, p) in enumerate(parts)]))
    add('jpeg zeros behind its first two bytes', b'\xff\xd8' + bytes(4) + rgb[2:])
    add('jpeg two frames', in_front(rgb, next(p for m, p in parts if m == 0xc0)))
    add('jpeg segment length past the end', changed(rgb, 0xe0, put(2, 0xff, 0xff)))
    add('jpeg behind junk', b'junk' + rgb)
    add('jpeg behind zeros', bytes(4) + rgb)
    add('jpeg first two bytes twice', b'\xff\xd8' + rgb)


def with_scan(data, change):
    head, scan = data[:data.rindex(b'\xff\xda')], data[data.rindex(b'\xff\xda'):]
    size = 2 + struct.unpack('>H', scan[2:4])[0]
    return head + scan[:size] + change(scan[size:-2]) + b'\xff\xd9'


def jpeg_ends_and_damage():
    for name, data in (('', jpeg()), (' grey', jpeg('L')), (' progressive', jpeg(progressive=True)),
                       (' cmyk', jpeg('CMYK')), (' restart', jpeg(restart_marker_blocks=1))):
        add(f'jpeg{name} without its end', data[:-2])
        add(f'jpeg{name} with half an end', data[:-1])
        add(f'jpeg{name} cut by 3 bytes', data[:-3])
        add(f'jpeg{name} cut by 20 bytes', data[:-20])
        add(f'jpeg{name} junk behind the end', data + b'junk' * 10)
        add(f'jpeg{name} zeros behind the end', data + bytes(30))
        add(f'jpeg{name} zeros before the end', data[:-2] + bytes(7) + data[-2:])
        add(f'jpeg{name} junk before the end', data[:-2] + b'junk' * 3 + data[-2:])
        add(f'jpeg{name} zeros in place of the end', data[:-2] + bytes(40))
        add(f'jpeg{name} two ends', data + b'\xff\xd9')
        for less in (12, 40):
            cut = data[:-less] + b'\xff\xd9'
            add(f'jpeg{name} the end {less} bytes too early', cut, strict=pillow(cut) is not None)
    rgb = jpeg()
    add('jpeg cut in the tables', rgb[:200])
    add('jpeg cut behind the tables', rgb[:rgb.rindex(b'\xff\xda') + 14])
    add('jpeg first three bytes', rgb[:3])
    add('jpeg two pictures', rgb + jpeg(width=8, height=8))
    cut = rgb[:-60] + bytes(60)
    add('jpeg zeros in place of its last 60 bytes', cut, strict=True)
    empty = with_scan(rgb, lambda scan: b'')
    add('jpeg no pixels', empty, strict=pillow(empty) is not None)
    ones = with_scan(rgb, lambda scan: scan[:30] + b'\xff\0' * 20 + scan[70:])
    add('jpeg no such Huffman code', ones, strict=pillow(ones) is not None)
    restart = jpeg('L', width=32, height=16, restart_marker_blocks=1)
    lost = with_scan(restart, lambda scan: scan.replace(b'\xff\xd2', b'', 1))
    add('jpeg a restart marker lost', lost, strict=pillow(lost) is not None)
    wrong = with_scan(restart, lambda scan: scan.replace(b'\xff\xd2', b'\xff\xd5', 1))
    add('jpeg a wrong restart marker', wrong, strict=pillow(wrong) is not None)
    for count in (1, 3, 20):
        filled = with_scan(restart, lambda scan: scan.replace(b'\xff\xd2', bytes(count) + b'\xff\xd2', 1))
        add(f'jpeg {count} zeros before a restart marker', filled)
    longer = with_scan(restart, lambda scan: scan.replace(b'\xff\xd2', scan[:9] + b'\xff\xd2', 1))
    add('jpeg data left before a restart marker', longer, strict=pillow(longer) is not None)
    progressive = jpeg(progressive=True)
    scans = [i for i in range(len(progressive) - 1) if progressive[i:i + 2] == b'\xff\xda']
    add('jpeg progressive, first scan alone', progressive[:scans[1]] + b'\xff\xd9', strict=True)
    add('jpeg progressive, half of its scans', progressive[:scans[len(scans) // 2]] + b'\xff\xd9', strict=True)
    add('jpeg progressive, without its last scan', progressive[:scans[-1]] + b'\xff\xd9', strict=True)
    grey = jpeg('L', progressive=True)
    scans_of_grey = [i for i in range(len(grey) - 1) if grey[i:i + 2] == b'\xff\xda']
    add('jpeg progressive grey, without its last scan', grey[:scans_of_grey[-1]] + b'\xff\xd9', strict=True)
    def scan_lost(which):
        tables = progressive.index(b'\xff\xc4', scans[which])
        return progressive[:scans[which]] + progressive[tables:]
    lost = scan_lost(0)
    add('jpeg progressive, its first scan lost', lost, strict=pillow(lost) is not None)


def arithmetic():
    ppm = io.BytesIO()
    photo('RGB').save(ppm, 'PPM')
    for name, more in (('', []), (' progressive', ['-progressive']), (' restart', ['-restart', '1B'])):
        data = subprocess.run(['cjpeg', '-arithmetic', *more], input=ppm.getvalue(), capture_output=True, check=True).stdout
        add(f'jpeg arithmetic{name}', data)
        cut = data[:-40] + b'\xff\xd9'
        add(f'jpeg arithmetic{name} the end too early', cut, strict='progressive' in name)


def strangers():
    image = photo('RGB', 8, 8)
    for kind in ('GIF', 'BMP', 'WEBP', 'TIFF', 'PPM', 'ICO', 'JPEG2000', 'TGA', 'AVIF'):
        out = io.BytesIO()
        try:
            image.save(out, kind)
        except Exception:
            print(f'this Pillow writes no {kind}')
            continue
        add(f'file {kind}', out.getvalue(), strict=pillow(out.getvalue()) is not None)
    add('file empty', b'')
    add('file LFS pointer', b'version https://git-lfs.github.com/spec/v1\noid sha256:' + b'a' * 64 + b'\nsize 12345\n')
    add('file web page', b'<!DOCTYPE html>\n<html><head><title>404</title></head></html>')
    add('file SVG', b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"/>')
    add('file of zeros', bytes(500))
    add('file of text', b'hello, I am no picture')


def main():
    for write in (depths_and_colours, colour_chunks, transparency, palettes, ends_and_damage, jpeg_kinds, jpeg_odd_headers,
                  jpeg_ends_and_damage, arithmetic, strangers):
        write()
    out = bytearray()
    for name, verdict, data, values in cases:
        out += struct.pack('>H', len(name)) + name.encode() + struct.pack('>BI', verdict, len(data)) + data
        if values is not None:
            out += struct.pack('>HH', *values[:2]) + values[2]
    packed = gzip.compress(bytes(out), 9, mtime=0)
    Path(__file__).with_name('cases.bin.gz').write_bytes(packed)
    counts = [sum(1 for c in cases if c[1] == v) for v in range(4)]
    print(f'{len(cases)} cases ({counts[0]} equal, {counts[1]} refused, {counts[2]} strict, {counts[3]} grey16), {len(packed)} bytes')
    if '-v' in sys.argv:
        for name, verdict, data, values in cases:
            print(('equal', 'refused', 'STRICT', 'grey16')[verdict], name, len(data))


if __name__ == '__main__':
    main()
