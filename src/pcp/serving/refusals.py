"""What clients are refused: each with the status of HTTP, and with what every API says of it."""

from pcp.errors import PCPError


class Refused(PCPError):
    """A request that is not answered.

    Arguments:
        message: what was given, what was expected, what to do.
        param: the field of the request that is wrong.
        retry_after: seconds after which it may be tried again; None where that would not help.
    """

    status = 400
    kind = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, param: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.param, self.retry_after = param, retry_after


class MalformedJson(Refused):
    """A body that is no object of JSON."""


class InvalidField(Refused):
    """A field that has another type, or another value, than it may have."""


class Unsupported(Refused):
    """Something that this API has and this server does not."""


class ContextExceeded(Refused):
    """A prompt, with the tokens that are asked for, of more tokens than the model reads."""

    code = "context_length_exceeded"


class TemplateRefused(Refused):
    """A chat template that refuses messages, or takes too much time, memory or text."""


class SchemaRefused(Refused):
    """A JSON schema that answers cannot be held to."""


class KeyRefused(Refused):
    """No key, or one that this server does not know."""

    status, kind, code = 401, "authentication_error", "invalid_api_key"


class ModelNotServed(Refused):
    """Another model than the one that is served."""

    status, kind, code = 404, "not_found_error", "model_not_found"


class NoSuchAddress(Refused):
    """An address at which nothing answers."""

    status, kind, code = 404, "not_found_error", "unknown_url"


class BodyTooLarge(Refused):
    """A body of more bytes than are read."""

    status, kind, code = 413, "request_too_large", "request_too_large"


class Busy(Refused):
    """As many requests as the server takes are there already."""

    status, kind, code = 429, "rate_limit_error", "rate_limit_exceeded"


class Starting(Refused):
    """A server whose model is not ready yet."""

    status, kind, code = 503, "api_error", "starting"


class Draining(Refused):
    """The server ends, and finishes only what it has begun."""

    status, kind, code = 503, "overloaded_error", "draining"


class WeightsChanged(Refused):
    """The file of the weights was written to while it was mapped: what the model would say is nobody's."""

    status, kind, code = 503, "overloaded_error", "weights_changed"


class NoMemory(Refused):
    """There was no memory to take a request in."""

    status, kind, code = 503, "overloaded_error", "no_memory"


class Failed(Refused):
    """A step of the model failed."""

    status, kind, code = 500, "api_error", "internal_error"
