from __future__ import annotations

import numpy as np
import pytest

from phyla.errors import RequestError
from phyla.media import contact_sheet, mel_picture


def views(*sizes):
    return [np.full((height, width, 3), 200, np.uint8) for width, height in sizes]


def test_pictures_of_any_size_are_on_the_sheet_unchanged():
    pictures = views((30, 20), (10, 50), (7, 7))
    sheet = np.asarray(contact_sheet(pictures))
    shown = (sheet == 200).all(-1).sum()
    assert shown == sum(picture.shape[0] * picture.shape[1] for picture in pictures)


def test_captions_are_written_under_the_pictures():
    plain = np.asarray(contact_sheet(views((60, 20), (60, 20)), ["", ""]))
    words = np.asarray(contact_sheet(views((60, 20), (60, 20)), ["tile 0", "ĝł 漢字"]))
    assert plain.shape == words.shape
    assert (words != plain).any()
    assert (words[4:24] == plain[4:24]).all()


def test_a_cell_is_as_wide_as_its_caption():
    from PIL import ImageChops

    long = "frame 12 at 0.2 s, as it is scaled"
    narrow, wide = (contact_sheet(views((side, 20)), [long]) for side in (8, 400))
    assert narrow.width > 100
    words = (4, 24, narrow.width - 4, 38)
    assert ImageChops.difference(narrow.crop(words), wide.crop(words)).getbbox() is None


@pytest.mark.parametrize(
    "sizes", [[(5000, 40)], [(40, 9000)], [(1500, 200)] * 9, [(3, 3)] * 500, [(300, 10)] * 200]
)
def test_a_sheet_is_never_larger_than_4096_pixels(sizes):
    for captions in ([], ["caption"] * len(sizes)):
        sheet = contact_sheet(views(*sizes), captions)
        assert max(sheet.size) <= 4096


def test_no_pictures_are_an_empty_sheet():
    assert min(contact_sheet([]).size) >= 1


def test_what_is_no_picture_is_refused():
    with pytest.raises(RequestError) as caught:
        contact_sheet([*views((3, 3)), np.zeros((3, 3), np.uint8)])
    assert caught.value.field == "views[1]"
    with pytest.raises(RequestError, match="captions"):
        contact_sheet(views((3, 3)), ["a", "b"])


def test_a_spectrogram_has_its_low_bins_at_the_bottom():
    mel = np.zeros((5, 4), np.float32)
    mel[2, 0] = 1
    picture = mel_picture(mel)
    assert picture.shape == (4, 5, 3)
    assert picture.dtype == np.uint8
    assert picture[-1, 2].tolist() == [255, 255, 255]
    assert picture.sum() == 255 * 3


def test_a_spectrogram_of_silence_is_drawn():
    mel = np.full((5, 4), -np.inf)
    assert (mel_picture(mel) == 0).all()
    mel[0, 0], mel[1, 1], mel[2, 2] = 1, 3, np.nan
    assert mel_picture(mel)[-2, 1, 0] == 255
    assert mel_picture(np.zeros((0, 4))).shape == (4, 0, 3)
    with pytest.raises(RequestError):
        mel_picture(np.zeros(4))
