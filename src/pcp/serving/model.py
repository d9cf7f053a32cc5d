"""The model that is served: its engine, its tokens, its template, and what it must not exceed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pcp.inference.habits import Habits
from pcp.inference.request import Serves
from pcp.inference.sampling import Sampling
from pcp.serving.constraint import Constraints
from pcp.serving.refusals import ContextExceeded, InvalidField, Unsupported, WeightsChanged
from pcp.serving.rendering import Renderer
from pcp.serving.tool_calls import ToolForm, form_of
from pcp.serving.weights_watch import WeightsWatch
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.chat.template import Written
from pcp.training.data.tokenizer import Tokenizer, UnknownCharacter, UnknownToken


@dataclass(slots=True)
class ServedModel:
    """A model and what belongs to it.

    Arguments:
        name: under which clients ask for it.
        engine: that runs it.
        tokenizer: of its texts.
        context: most tokens of a prompt and its answer together.
        vocabulary: how many scores it gives.
        habits: of its files.
        template: in Jinja, which makes text of messages; None where there is none.
        no_template: why there is none, for messages.
        watch: of the files of its weights.
    """

    name: str
    engine: Serves
    tokenizer: Tokenizer
    context: int
    vocabulary: int
    habits: Habits = field(default_factory=Habits)
    template: Written | None = None
    no_template: str = "this model has no chat template"
    watch: WeightsWatch = field(default_factory=lambda: WeightsWatch(()))
    created: int = field(default_factory=lambda: int(time.time()))
    constraints: Constraints = field(init=False)
    tools: ToolForm | None = field(init=False)
    _renderer: Renderer | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.constraints = Constraints(self.tokenizer, self.vocabulary, self.habits.ends)
        self.tools = None if self.template is None else form_of(self.template.source)
        if self.template is not None:
            self._renderer = Renderer(self.template)

    def close(self) -> None:
        """End what belongs to it, but the engine."""
        if self._renderer is not None:
            self._renderer.close()

    def check_weights(self) -> None:
        """Raises WeightsChanged if a file of the weights was written to since it was mapped."""
        if (file := self.watch.changed()) is not None:
            raise WeightsChanged(
                f"{file} was written to while this server had it mapped, so its weights are no model any more; start it "
                "again. To change weights under a server, write another file and rename it"
            )

    def tokens_of(self, text: str, param: str) -> tuple[int, ...]:
        """The tokens of a text to continue; raises InvalidField for one that the tokenizer does not know."""
        try:
            if isinstance(self.tokenizer, BytePairTokenizer):
                return tuple(self.tokenizer.encode_prompt(text))
            return tuple(self.tokenizer.encode(text).tolist())
        except (UnknownCharacter, UnknownToken) as error:
            raise InvalidField(f"{param}: {error}", param) from None

    def tokens_of_messages(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        variables: dict[str, Any],
        param: str,
    ) -> tuple[int, ...]:
        """The tokens of a conversation up to where an answer begins; what stands before a text is the template's to write.

        Arguments:
            messages: with `role`, `content` and what else a template reads.
            tools: that the model may call, in the form of the Chat API.
            variables: more of the template.

        Raises:
            Unsupported: there is no template, or it knows no tools.
            TemplateRefused, InvalidField: see `Renderer`, `tokens_of`.
        """
        if self._renderer is None:
            raise Unsupported(
                f"{self.no_template}; or ask at /v1/completions, which takes text as it is", param
            )
        if tools and self.tools is None:
            raise Unsupported(
                f"the chat template of {self.name!r} knows no tools in a form that is read here; ask without tools",
                "tools",
            )
        more = variables | ({"tools": tools} if tools else {})
        text = self._renderer.render(messages, **({"add_generation_prompt": True} | more))
        try:
            return tuple(self.tokenizer.encode(text).tolist())
        except (UnknownCharacter, UnknownToken) as error:
            raise InvalidField(f"{param}: {error}", param) from None

    def count_for(self, prompt: Sequence[int], asked: int | None, param: str) -> int:
        """How many new tokens fit behind a prompt, or are asked for.

        Raises:
            ContextExceeded: the prompt fills the context, or more are asked for than there is room.
        """
        room = self.context - len(prompt)
        if room < 1:
            raise ContextExceeded(
                f"the prompt has {len(prompt):,} tokens, and {self.name!r} reads {self.context:,}, of which some are the "
                f"answer's; shorten it by {1 - room:,} tokens",
                "messages",
            )
        if asked is not None and asked > room:
            raise ContextExceeded(
                f"the prompt has {len(prompt):,} tokens and {param} is {asked:,}, together {len(prompt) + asked:,}; "
                f"{self.name!r} reads {self.context:,}. Ask for at most {room:,} tokens, or leave {param} out",
                param,
            )
        return room if asked is None else asked

    def sampling(self, **said: Any) -> Sampling:
        """How tokens are drawn: as the client says, else as the model's makers recommend, else with a temperature of 1."""
        return self.habits.drawing(said, {"temperature": 1.0})
