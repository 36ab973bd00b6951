"""Makes a thumbnail: an image in any format that Pillow reads comes in, a PNG goes out."""

import io
import os

from PIL import Image, ImageOps, UnidentifiedImageError

SIDE = int(os.environ.get("SIDE", "256"))

# Readers and writers of formats are found once, before the first call.
Image.init()


def main(event, context):
    """A request whose content type is not JSON comes as its bytes; an answer may be bytes, too."""
    if not isinstance(event, bytes):
        return {"statusCode": 415, "body": {"error": "send an image, with its content type (such as image/jpeg)"}}
    try:
        png, size = thumbnail_of(event)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        return {"statusCode": 400, "body": {"error": f"the image cannot be read: {error}"}}
    return {
        "statusCode": 200,
        "headers": {"content-type": "image/png", "x-size": f"{size[0]}x{size[1]}"},
        "body": png,
    }


def thumbnail_of(data):
    """The PNG of the thumbnail, and its size in pixels."""
    with Image.open(io.BytesIO(data)) as image:
        # Lets a JPEG be decoded at a fraction of its size, which is most of the time saved.
        image.draft("RGB", (SIDE * 2, SIDE * 2))
        upright = ImageOps.exif_transpose(image)
        upright.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
        small = upright if upright.mode in {"L", "LA", "RGB", "RGBA"} else upright.convert("RGBA")
        out = io.BytesIO()
        small.save(out, "PNG")
        return out.getvalue(), small.size
