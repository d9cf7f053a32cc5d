"""Chat templates in a process of their own: what they may do, and what stops those that do more."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="the extra `serve` is not installed")

from pcp.serving import rendering
from pcp.serving.refusals import TemplateRefused
from pcp.serving.rendering import Renderer
from pcp.training.data.chat.messages import Message
from pcp.training.data.chat.template import PLAIN, Written, plain_template, written_in

Make = Callable[[str], Renderer]
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Renderer] = []

    def making(source: str) -> Renderer:
        made.append(Renderer(Written(source, {"bos_token": "<s>"}, "it.jinja")))
        return made[-1]

    yield making
    for each in made:
        each.close()


def test_a_template_has_what_templates_of_models_expect(make: Make) -> None:
    source = "{{ bos_token }}{{ tools | tojson }}{{ strftime_now('%Y') | length }}{% for m in messages %}{{ m.content }}{% endfor %}{{ think }}"
    text = make(source).render(HI, tools=[{"name": "é"}], think=True)
    assert text == '<s>[{"name": "é"}]4HiTrue'


def test_a_template_that_refuses_messages_is_heard_and_goes_on(make: Make) -> None:
    renderer = make(
        "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}{{ messages[0].content }}"
    )
    with pytest.raises(
        TemplateRefused, match=r"refuses messages of the roles user, user: TemplateError: one only"
    ):
        renderer.render(HI * 2)
    assert renderer.render(HI) == "Hi"


def test_no_template_is_refused_at_once(make: Make) -> None:
    with pytest.raises(TemplateRefused, match=r"it\.jinja is not a template in Jinja: unexpected '}'"):
        make("{{ messages }")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "took more than 0.5 s for these messages",
        ),
        ("{% set n = messages | length + 8 %}{{ (n ** (n ** n)) > 1 }}", "took more than 0.5 s"),
        ("{{ 'x' * 20000 }}", "makes 20,004 bytes of these messages; at most 10,000 are read"),
        ("{{ ('x' * 1073741824) | length }}", "MemoryError"),
        ("{{ messages.__class__.__mro__ }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
    ],
)
def test_a_hostile_template_is_stopped_and_the_next_conversation_is_rendered(
    make: Make, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    monkeypatch.setattr(rendering, "RENDER_SECONDS", 0.5)
    monkeypatch.setattr(rendering, "LONGEST_TEXT", 10_000)
    renderer = make("{% if messages[0].content == 'Hi' %}" + source + "{% endif %}well")
    with pytest.raises(TemplateRefused, match=words.replace("(", r"\(")):
        renderer.render(HI)
    monkeypatch.setattr(rendering, "RENDER_SECONDS", 20.0)
    assert renderer.render([{"role": "user", "content": "other"}]) == "well"


def test_the_plain_template_is_the_same_in_jinja(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    renderer = Renderer(written_in(tmp_path, PLAIN))
    talk = [("user", "Hi"), ("assistant", "Ho"), ("user", "Hm")]
    found = renderer.render(
        [{"role": role, "content": text} for role, text in talk], add_generation_prompt=True
    )
    renderer.close()
    assert found == plain_template("</s>").render([Message(*each) for each in talk], True)
