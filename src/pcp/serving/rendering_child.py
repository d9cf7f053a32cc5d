"""The process that renders a chat template: started by `rendering`, and spoken to by it alone."""

from pcp.processes.parent import Parent
from pcp.training.data.chat.template import ChatTemplateUnreadable, rendering


def bound_memory(more: int) -> None:
    """Let this process take so many bytes more, where the system can bound that."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
    except (ModuleNotFoundError, OSError):  # not Linux; the time and the text are bounded there, too
        return
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


def main() -> None:
    """Read the template, then answer conversations until the parent goes."""
    parent = Parent()
    source, settings, name, longest, memory = parent.asks()
    bound_memory(memory)
    try:
        render = rendering(source, settings, name)
    except ChatTemplateUnreadable as error:
        parent.say(refused=str(error))
        return
    parent.say(ready=True)
    while True:
        messages, variables = parent.asks()
        try:
            text = render(messages=messages, **variables)
            size = len(text.encode("utf-8", "replace"))
            if size > longest:
                parent.say(
                    refused=f"the chat template {name} makes {size:,} bytes of these messages; "
                    f"at most {longest:,} are read"
                )
            else:
                parent.say(text=text)
        except ChatTemplateUnreadable as error:
            parent.say(refused=str(error)[:1000])
        except MemoryError:
            parent.say(
                refused=f"the chat template {name} takes more memory than the {memory >> 20} MiB that it may"
            )


if __name__ == "__main__":
    main()
