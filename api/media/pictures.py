"""The pictures that a request has brought, looked at before anything is made of them."""

from infra.errors import InvalidRequest
from infra.pictures import Picture, measure
from workers.engine.drawing import MAX_INPUT_PIXELS


def check_pictures(pictures: dict[str, bytes]) -> None:
    """Look at the heads of a request's pictures; nothing is decoded.

    Raises:
        InvalidRequest: one is no picture that is read here, or too large, or the mask is of another size.
    """
    sizes = {name: _picture(data, name) for name, data in pictures.items()}
    image, mask = sizes.get("image"), sizes.get("mask")
    if image is not None and mask is not None and image[1:] != mask[1:]:
        raise InvalidRequest(
            f"the mask has {mask.width} x {mask.height} pixels and the image {image.width} x {image.height}: they must "
            "be alike",
            param="mask",
        )


def _picture(data: bytes, name: str) -> Picture:
    found = measure(data)
    if found is None:
        raise InvalidRequest(f"{name} is no PNG, JPEG or WebP image", param=name, code="unsupported_type")
    if found.width * found.height > MAX_INPUT_PIXELS:
        raise InvalidRequest(
            f"{name} has {found.width} x {found.height} pixels; {MAX_INPUT_PIXELS} are the most: send a smaller one",
            param=name,
            code="too_many_pixels",
        )
    return found
