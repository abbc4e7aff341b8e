"""Images, audio and videos in `phyla run`, `chat` and `inspect`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from phyla.cli import media_input
from phyla.cli.app import make_app
from phyla.cli.conversation import Conversation
from phyla.cli.kept import Kept
from phyla.cli.path_completion import complete_path
from phyla.cli.shell import Shell, open_engine
from phyla.errors import ContextOverflowError, MediaError
from phyla.messages import Audio, Image, Message, Text, Video, read_messages
from phyla.testing.sight import picture, tone
from phyla.testing.sighted import sighted, sighted_registry

if TYPE_CHECKING:
    from typer.testing import Result

    from phyla.messages import Medium


@pytest.fixture
def photo(tmp_path) -> Path:
    return write_picture(tmp_path / "my photo.png")


def write_picture(path: Path, seed: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    import PIL.Image

    PIL.Image.fromarray(picture(seed)).save(path)
    return path


def write_sound(path: Path) -> Path:
    import wave

    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((tone(440) * 32767).astype("<i2").tobytes())
    return path


def write_video(path: Path) -> Path:
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=2)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for seed in range(4):
            frame = av.VideoFrame.from_ndarray(picture(seed, height=16, width=32), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def content(kind: type[Medium], file: Path | str) -> Medium:
    return kind(source=Path(file).read_bytes())


class Vanishing:
    """Deletes a file once so many messages were answered."""

    def __init__(self, file: Path, *, after: int) -> None:
        self.content = file.read_bytes()
        self._file, self._left = file, after
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        add = Conversation.add

        def counted(conversation: Conversation, *messages: Message) -> None:
            add(conversation, *messages)
            self._left -= 1
            if not self._left:
                self._file.unlink()

        self._patch.setattr(Conversation, "add", counted)

    def __exit__(self, *error: object) -> None:
        self._patch.undo()


@pytest.fixture
def files(tmp_path, photo) -> list[Path]:
    return [photo, write_sound(tmp_path / "a.wav"), write_video(tmp_path / "b.mp4")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "tiny-sighted"
    return sighted("fmfm").write(path, registry=sighted_registry())


@pytest.fixture
def sees(folder):
    """The program, with the toy family that reads everything."""
    shell = Shell(registry=sighted_registry(), open_engine=open_engine)

    def run(command: str, *arguments: str, stdin: str = "") -> Result:
        arguments = (command, str(folder), *arguments)
        return CliRunner().invoke(make_app(shell), arguments, input=stdin, obj=shell)

    return run


# run


def test_media_come_before_the_prompt_in_the_order_of_the_command_line(program, files):
    phyla = program()
    photo, sound, film = map(str, files)
    result = phyla(
        *("run", "m", "--video", film, "What?", "--image", photo, f"--audio={sound}"),
        *("--image", photo),
    )
    assert result.exit_code == 0, result.stderr
    assert phyla.engine.asked[0].history[-1].blocks == (
        Video(source=film), Image(source=photo), Audio(source=sound), Image(source=photo),
        Text(text="What?"),
    )  # fmt: skip
    assert phyla.choices[0].needed == ("video", "image", "audio", "image")


def test_raw_takes_media_with_places_in_the_prompt(program, photo):
    phyla = program()
    phyla("run", "m", "<image>What?", "--raw", "--image", str(photo))
    assert phyla.engine.encoded == [Image(source=str(photo))]


def test_media_need_no_prompt(program, photo):
    phyla = program()
    result = phyla("run", "m", "--image", str(photo))
    assert result.exit_code == 0, result.stderr
    assert phyla.engine.asked[0].history[-1].blocks == (Image(source=str(photo)),)
    raw = phyla("run", "m", "--raw", "--image", str(photo))
    assert raw.stderr == "error: The prompt is empty. Say something.\n"


def test_limits_hold_for_every_item_of_the_call(program, files):
    phyla = program()
    photo, sound, film = map(str, files)
    media = ("--image", photo, "--audio", sound, "--video", film)
    wishes = ("--max-media-tokens", "9", "--fps", "1.5", "--max-frames", "3")
    assert phyla("run", "m", "What?", *media, *wishes).exit_code == 0
    assert phyla.engine.asked[0].history[-1].media == (
        Image(source=photo, max_tokens=9), Audio(source=sound, max_tokens=9),
        Video(source=film, max_tokens=9, fps=1.5, max_frames=3),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max-media-tokens", "5"], "there is no image"),
        (["--image", "a.png", "--fps", "1"], "there is no video"),
        (["--image", "a.png", "--max-frames", "1"], "there is no video"),
        (["--video", "a.mp4", "--fps", "0"], "more than 0"),
        (["--video", "a.mp4", "--fps", "nan"], "more than 0"),
    ],
)
def test_limits_of_nothing_are_wrong_usage(program, arguments, said):
    phyla = program()
    result = phyla("run", "m", "What?", *arguments)
    assert (result.exit_code, phyla.choices) == (2, [])
    assert said in result.stderr


def test_an_item_that_takes_too_much_is_told_by_name_and_option(sees, photo):
    result = sees("run", "What?", "--image", str(photo), "--max-media-tokens", "9")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {photo}: the image takes 140 tokens, more than --max")
    assert "Raise --max-media-tokens, or" in result.stderr


@pytest.mark.parametrize("kind", ["image", "audio", "video"])
def test_a_file_that_is_not_there_is_found_before_the_model_is_loaded(program, tmp_path, kind):
    phyla = program()
    result = phyla("run", "m", "What?", f"--{kind}", str(tmp_path / "typo.bin"))
    assert (result.exit_code, phyla.choices) == (1, [])
    assert (
        result.stderr
        == f"error: There is no file {str(tmp_path / 'typo.bin')!r}. Check the path.\n"
    )
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_no_picture_is_found_before_the_model_is_loaded(program, photo, tmp_path):
    (tmp_path / "page.png").write_text("<html>Not found</html>")
    phyla = program()
    arguments = ("--image", str(photo), "--image", str(tmp_path / "page.png"))
    result = phyla("run", "m", "What?", *arguments)
    assert (result.exit_code, phyla.choices) == (1, [])
    assert result.stderr.startswith(f"error: {tmp_path / 'page.png'} (image): it is no image")


def test_what_has_no_name_is_told_by_its_place(program, photo):
    arguments = ("--image", str(photo), "--image", "data:;base64,AAAA")
    result = program()("run", "m", "What?", *arguments)
    assert result.stderr.startswith("error: media[1] (image): it is no image")


def test_urls_are_fetched_once_and_only_if_allowed(program, photo, monkeypatch):
    fetched: list[str] = []

    def fetch(url, item):
        assert item.limits.http
        fetched.append(url)
        return photo.read_bytes()

    monkeypatch.setattr("phyla.media.http.fetch", fetch)
    phyla = program()
    arguments = ("run", "m", "What?", "--image", "https://example.com/a.png")
    refused = phyla(*arguments)
    assert (refused.exit_code, fetched, phyla.choices) == (1, [], [])
    assert refused.stderr.endswith("Download it, or add --allow-http.\n")
    assert phyla(*arguments, "--allow-http").exit_code == 0
    assert fetched == ["https://example.com/a.png"]
    image = phyla.engine.asked[0].history[-1].media[0]
    assert base64.b64decode(image.source.partition(",")[2]) == photo.read_bytes()


def test_a_tilde_is_the_home_folder_and_file_urls_are_paths(photo, monkeypatch):
    monkeypatch.setenv("HOME", str(photo.parent))
    for text in ("~/my photo.png", photo.as_uri(), str(photo)):
        block = media_input.read_medium("image", text, allow_http=False)
        assert block == Image(source=str(photo))


def test_what_looks_like_base64_is_a_path_and_nothing_else(photo):
    text = base64.b64encode(photo.read_bytes()).decode()
    with pytest.raises(MediaError):
        media_input.read_medium("image", text, allow_http=False)
    data = media_input.read_medium("image", f"data:image/png;base64,{text}", allow_http=False)
    assert data.source == f"data:;base64,{text}"


def test_a_real_engine_is_shown_all_and_tells_one_picture_from_another(sees, files, tmp_path):
    photo, sound, film = map(str, files)
    options = ("--max-tokens", "6", "--temperature", "0", "--json")
    media = ("--image", photo, "--audio", sound, "--video", film)
    first = json.loads(sees("run", "What?", *media, *options).stdout)
    bare = json.loads(sees("run", "What?", *options).stdout)
    # 10 x 14 and two marks, 9 tenths of a second, 4 frames of 4 x 8 behind their times
    extra = 142 + 9 + 4 * (32 + 3)
    assert first["usage"]["prompt_tokens"] - bare["usage"]["prompt_tokens"] == extra


def test_a_model_that_cannot_read_it_says_so_before_its_weights_are_read(
    program, phyla, tiny, photo, monkeypatch
):
    import mlx.core as mx

    def load(*arguments: object, **options: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(mx, "load", load)
    result = phyla("run", str(tiny), "What?", "--image", str(photo))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {photo}: tiny-llama reads no images; it reads text.")
    assert result.stderr.count("\n") == 1


# chat


def test_chat_sends_what_was_added_with_the_next_message_only(program, files):
    phyla = program()
    photo, sound, film = map(str, files)
    lines = [f"/image {photo}", f"/audio {sound}", f"/video {film}", "What?", "And?"]
    result = phyla("chat", "m", stdin="\n".join(lines))
    assert result.stderr.splitlines()[2].startswith(
        "(with the next message: image my photo.png, audio a.wav, video b.mp4; the last takes "
    )
    first, second = phyla.engine.asked
    assert first.history[0].blocks == (
        content(Image, photo), content(Audio, sound), content(Video, film), Text(text="What?"),
    )  # fmt: skip
    assert second.history[0] == first.history[0]
    assert second.messages[2] == ("user", "And?")
    assert second.history[2].media == ()


@pytest.mark.parametrize("write", ["{}", '"{}"', "'{}'", "{} "])
def test_paths_may_hold_blanks_and_quotes(program, tmp_path, write):
    file = write_picture(tmp_path / "a  folder" / "it is\tme.png")
    phyla = program()
    phyla("chat", "m", stdin=f"/image {write.format(file)}\nWhat?\n")
    assert phyla.engine.asked[0].history[0].media == (content(Image, file),)


def test_paths_may_be_written_as_a_shell_would_have_them(program, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    file = write_picture(tmp_path / "it's me.png")
    phyla = program()
    escaped = str(file).replace(" ", "\\ ").replace("'", "\\'")
    phyla("chat", "m", stdin=f"/image {escaped}\n/image ~/it's me.png\nWhat?\n")
    assert phyla.engine.asked[0].history[0].media == (content(Image, file),) * 2


def test_relative_paths_are_saved_as_whole_ones(program, photo, tmp_path, monkeypatch):
    monkeypatch.chdir(photo.parent)
    file = tmp_path / "talk.json"
    program()("chat", "m", stdin=f"/image {photo.name}\nWhat?\n/save {file}\n")
    assert read_messages(json.loads(file.read_text()))[0].media == (Image(source=str(photo)),)


def test_options_of_chat_go_with_the_first_message(program, files):
    phyla = program()
    photo, sound, film = map(str, files)
    arguments = ("--video", film, "--image", photo, "--max-media-tokens", "900")
    result = phyla("chat", "m", *arguments, stdin=f"/audio {sound}\nWhat?\nAnd?\n")
    assert result.exit_code == 0, result.stderr
    assert "(with the next message: video b.mp4, image my photo.png; " in result.stderr
    first, second = phyla.engine.asked
    assert [block.type for block in first.history[0].media] == ["video", "image", "audio"]
    assert {block.max_tokens for block in first.history[0].media} == {900}
    assert second.history[2].media == ()
    assert phyla.choices[0].needed == ("video", "image")


def test_options_of_chat_are_checked_before_the_model_is_loaded(program, tmp_path):
    phyla = program()
    result = phyla("chat", "m", "--image", str(tmp_path / "no.png"), stdin="Hi\n")
    assert (result.exit_code, result.stdout, phyla.choices) == (1, "", [])


def test_drop_forgets_what_waits_and_reset_says_that_it_stays(program, photo):
    phyla = program()
    lines = [f"/image {photo}", "/drop", "/drop", "Hi", f"/image {photo}", "/reset", "Hi"]
    result = phyla("chat", "m", stdin="\n".join(lines))
    assert "Forgot image my photo.png.\nNothing was waiting.\n" in result.stderr
    assert "forgotten.\n(still with the next message: image my photo.png; /drop" in result.stderr
    first, second = phyla.engine.asked
    assert first.history[0].media == ()
    assert [len(message.media) for message in second.history] == [1]


def test_a_chat_goes_on_when_a_file_that_was_sent_is_gone(sees, photo, tmp_path):
    file = tmp_path / "talk.json"
    shell = Vanishing(photo, after=2)
    lines = [f"/image {photo}", "What?", "And?", f"/save {file}", f"/load {file}", "So?"]
    with shell:
        result = sees("chat", "--max-tokens", "3", stdin="\n".join(lines))
    assert result.exit_code == 0, result.stderr
    assert not photo.exists()
    saved = read_messages(json.loads(file.read_text()))[0].media[0]
    assert base64.b64decode(saved.source.partition(",")[2]) == shell.content


def test_a_file_that_has_changed_since_is_saved_as_it_was_sent(program, photo, tmp_path):
    file = tmp_path / "talk.json"
    block = media_input.read_medium("image", str(photo), allow_http=False, keep=True)
    conversation = Conversation()
    conversation.add(Message(role="user", content=[block, Text(text="What?")]))
    conversation.save(file)
    assert str(photo) in file.read_text()
    again = Conversation()
    again.load(file)
    assert again.messages[0] == conversation.messages[0]
    assert isinstance(again.messages[0].media[0].source, Kept)
    before = photo.read_bytes()
    write_picture(photo, seed=2)
    conversation.save(file)
    assert base64.b64encode(before).decode() in file.read_text()


def test_a_conversation_whose_files_are_gone_is_not_loaded(program, photo, tmp_path):
    file = tmp_path / "talk.json"
    program()("chat", "m", stdin=f"/image {photo}\nWhat?\n/save {file}\n")
    photo.unlink()
    result = program()("chat", "m", stdin=f"/load {file}\nHi\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert str(photo) in result.stderr


def test_what_cannot_be_added_is_told_at_once_and_the_rest_stays(
    program, photo, tmp_path, keyboard
):
    phyla = program()
    lines = [f"/image {photo}", "/image", f"/image {tmp_path / 'no.png'}", "Hi"]
    result = phyla("chat", "m", stdin="\n".join(lines))
    errors = [line for line in result.stderr.splitlines() if line.startswith("error")]
    assert errors[0] == "error: /image needs a file's name."
    assert "There is no file" in errors[1]
    assert phyla.engine.asked[0].history[0].media == (content(Image, photo),)


def test_without_a_terminal_a_command_that_fails_ends_it(program, tmp_path):
    phyla = program()
    result = phyla("chat", "m", stdin=f"/image {tmp_path / 'no.png'}\nWhat is this?\n")
    assert (result.exit_code, result.stdout, phyla.engine.asked) == (1, "", [])
    assert result.stderr.count("error") == 1


def test_what_was_added_stays_when_a_message_fails(program, script, photo):
    phyla = program(script(error=ContextOverflowError(limit=10, excess=3)))
    result = phyla("chat", "m", stdin=f"/image {photo}\nfar too long\nshort\n")
    assert "(still with the next message: image my photo.png; /drop forgets it)" in result.stderr
    history = phyla.engine.asked[1].history
    assert [message.text for message in history] == ["short"]
    assert len(history[0].media) == 1


def test_a_chat_with_a_real_engine_remembers_a_picture_and_saves_its_path(sees, photo, tmp_path):
    file = tmp_path / "talk.json"
    lines = [f"/image {photo}", "What?", "And?", f"/save {file}", f"/load {file}", "So?"]
    result = sees("chat", "--max-tokens", "3", "--temperature", "0", stdin="\n".join(lines))
    assert "error" not in result.stderr
    assert "the last takes 140 tokens" in result.stderr
    saved = read_messages(json.loads(file.read_text()))
    assert saved[0].blocks == (Image(source=str(photo)), Text(text="What?"))


def test_a_chat_with_a_real_engine_that_reads_less_says_so_at_once(phyla, tiny, photo):
    result = phyla("chat", str(tiny), "--max-tokens", "2", stdin=f"/image {photo}\nHi\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: {photo.name}: this model reads no images; it reads text only. Leave it out, or "
        "load a model that reads it; `phyla inspect` shows what one reads.\n"
    )


def test_tab_completes_the_paths_of_commands(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("my photo.png", "my film.mp4", ".hidden.png", "Others/x.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert complete_path("/image my") == ["/image my film.mp4", "/image my photo.png"]
    assert complete_path("/video ~/my f") == ["/video ~/my film.mp4"]
    assert complete_path("/image O") == ["/image Others/"]
    assert complete_path("/image Others/") == ["/image Others/x.png"]
    assert complete_path(f"/load {tmp_path}/.") == [f"/load {tmp_path}/.hidden.png"]
    for line in ("my", "/image", "/system my", "/image nowhere/", "/image ~nobody-here/"):
        assert complete_path(line) == []


# inspect


def test_inspect_lists_what_the_checkpoint_reads(sees, phyla, tiny):
    assert "modalities    text, image, audio, video" in sees("inspect").stdout.splitlines()
    assert "modalities    text" in phyla("inspect", str(tiny)).stdout.splitlines()


def test_inspect_shows_what_the_model_will_see_without_reading_weights(
    sees, files, tmp_path, monkeypatch
):
    import mlx.core as mx

    def load(*arguments: object, **options: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(mx, "load", load)
    monkeypatch.chdir(tmp_path)
    photo, sound, film = map(str, files)
    result = sees("inspect", "--audio", sound, "--image", photo, "--video", film)
    assert result.exit_code == 0, result.stderr
    assert [line.split("  ")[0] for line in result.stdout.splitlines()] == [
        "audio", "size", "soft tokens", "in the prompt",
        "image", "size", "soft tokens", "in the prompt",
        "video", "size", "soft tokens", "in the prompt",
        "saved",
    ]  # fmt: skip
    assert "( <audio> x 9 )" in result.stdout
    assert "0.9 s at 16000 Hz" in result.stdout
    assert "56 x 40 pixels" in result.stdout
    assert "140, of 142 in the prompt" in result.stdout
    assert "<img> <image> x 140 (10 x 14) </img>" in result.stdout
    assert "0.0 <video> x 32 (4 x 8) 0.5 <video> x 32 (4 x 8) ... 2 more ... 1.5" in result.stdout
    assert (tmp_path / "a.seen.png").exists()


def test_the_saved_picture_is_what_the_model_sees(sees, photo, tmp_path):
    import PIL.Image

    file = tmp_path / "sheet.png"
    result = sees("inspect", "--image", str(photo), "--save", str(file), "--json")
    found = json.loads(result.stdout)
    assert found["sheet"] == str(file)
    assert found["media"][0]["soft_tokens"] == 140
    sheet = np.asarray(PIL.Image.open(file))
    seen = np.asarray(PIL.Image.open(photo))
    height, width = seen.shape[:2]
    places = np.lib.stride_tricks.sliding_window_view(sheet, seen.shape)
    assert sheet.shape[0] >= height
    assert sheet.shape[1] >= width
    assert any(np.array_equal(each, seen) for each in places.reshape(-1, *seen.shape))


def test_a_file_is_written_over_only_when_told_to(sees, photo, monkeypatch):
    monkeypatch.chdir(photo.parent)
    there = photo.parent / "my_photo.seen.png"
    there.write_bytes(b"mine")
    refused = sees("inspect", "--image", str(photo), "--save", there.name)
    assert (refused.exit_code, refused.stdout, there.read_bytes()) == (1, "", b"mine")
    assert "exists already" in refused.stderr
    assert "--force" in refused.stderr
    assert sees("inspect", "--image", str(photo), "--force").exit_code == 0
    assert there.read_bytes() != b"mine"


def test_a_picture_with_no_name_given_gets_a_free_one(sees, photo, monkeypatch):
    monkeypatch.chdir(photo.parent)
    said = [sees("inspect", "--image", str(photo)).stdout.split()[-1] for _ in range(3)]
    assert said == ["my_photo.seen.png", "my_photo.seen-2.png", "my_photo.seen-3.png"]
    assert sorted(path.name for path in photo.parent.glob("*.seen*")) == sorted(said)


def test_inspect_of_a_sound_with_nothing_to_look_at_saves_nothing(sees, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = sees("inspect", "--audio", str(write_sound(tmp_path / "a.wav")))
    assert "nothing to look at" in result.stdout
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--save", "a.png"], 2, "--save"),
        (["--image", "no.png"], 1, "There is no file"),
        (["--image", "{photo}", "--save", "{folder}/x.foo"], 2, "should end in .png"),
        (["--image", "{photo}", "--save", "{photo}"], 1, "exists already. Choose another"),
        (["--image", "{photo}", "--save", "{folder}/no/a.png", "--force"], 1, "no folder"),
    ],
)
def test_inspect_refuses_what_it_cannot_do(sees, photo, arguments, code, text):
    filled = [each.format(photo=photo, folder=photo.parent) for each in arguments]
    result = sees("inspect", *filled)
    assert result.exit_code == code
    assert text in result.stderr


def test_inspect_of_media_says_what_a_model_cannot_read(phyla, tiny, photo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = phyla("inspect", str(tiny), "--image", str(photo), "--save", "no/folder.png")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {photo}: tiny-llama reads no images")
    assert not list(tmp_path.glob("*.seen.png"))
