"""Made request.jpg: a mountain lake that no camera saw, the same bytes of colour each time. Needs Pillow.

    python make_photo.py request.jpg
"""

import math
import random
import sys

from PIL import Image, ImageChops, ImageDraw, ImageFilter

WIDTH, HEIGHT = 1600, 1200
HORIZON = 700


def ridge(seed, base, height):
    """A line of mountains: sums of waves with random phases, as points from left to right."""
    rng = random.Random(seed)
    waves = [(height / n**0.9, n * rng.uniform(0.6, 1.4), rng.uniform(0, math.tau)) for n in range(1, 40)]
    points = []
    for x in range(0, WIDTH + 4, 4):
        lift = sum(a * math.sin(f * x / WIDTH * math.tau + p) for a, f, p in waves)
        points.append((x, base - abs(lift)))
    return points


def gradient(top, bottom, height):
    """A vertical gradient of colours."""
    column = Image.new("RGB", (1, height))
    for y in range(height):
        t = y / (height - 1)
        column.putpixel((0, y), tuple(round(a + (b - a) * t) for a, b in zip(top, bottom, strict=True)))
    return column.resize((WIDTH, height))


def noise(seed, size, blur):
    """Soft grey noise of the photo's size."""
    cells = random.Random(seed).randbytes(size[0] * size[1])
    return Image.frombytes("L", size, cells).filter(ImageFilter.GaussianBlur(blur)).resize((WIDTH, HEIGHT))


def photo():
    """The picture."""
    sky = Image.new("RGB", (WIDTH, HEIGHT))
    sky.paste(gradient((58, 104, 168), (244, 205, 160), HORIZON))
    sun = Image.new("L", (WIDTH, HEIGHT))
    ImageDraw.Draw(sun).ellipse((1090, 420, 1210, 540), fill=255)
    for blur in (90, 30, 2):
        glow = sun.filter(ImageFilter.GaussianBlur(blur))
        warm = Image.merge("RGB", (glow, glow.point(lambda v: v * 0.9), glow.point(lambda v: v * 0.6)))
        sky = ImageChops.screen(sky, warm)
    clouds = noise(1, (80, 60), 1.2).point(lambda v: max(0, min(255, (v - 128) * 6)))
    sky = Image.composite(Image.new("RGB", sky.size, (250, 240, 235)), sky, clouds.point(lambda v: v * 0.45))
    draw = ImageDraw.Draw(sky)
    for seed, base, height, colour in (
        (11, 690, 120, (134, 140, 170)), (12, 700, 85, (92, 104, 132)), (13, 705, 50, (48, 66, 72)),
    ):
        draw.polygon([(0, HORIZON), *ridge(seed, base, height), (WIDTH, HORIZON)], fill=colour)
    mirrored = sky.crop((0, 2 * HORIZON - HEIGHT, WIDTH, HORIZON)).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    depth = Image.new("RGB", mirrored.size, (20, 46, 66))
    lake = Image.blend(mirrored.filter(ImageFilter.GaussianBlur(3)), depth, 0.45)
    sky.paste(lake, (0, HORIZON))
    ripples = noise(2, (200, 600), 0.8).crop((0, HORIZON, WIDTH, HEIGHT)).point(lambda v: max(0, (v - 140) * 2))
    sky.paste(Image.new("RGB", ripples.size, (235, 215, 190)), (0, HORIZON), ripples.point(lambda v: v * 0.5))
    grain = noise(3, (WIDTH, HEIGHT), 0.7)
    return Image.blend(sky, Image.merge("RGB", (grain, grain, grain)), 0.07)


if __name__ == "__main__":
    photo().save(sys.argv[1], "JPEG", quality=82, optimize=True)
