"""The page that confirms an action, and its form."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from peerd.domain.errors import NotPermitted, PeerdError
from peerd.web.pages.actions import ActionCall, FormField, PageAction
from peerd.web.pages.formats import one_line
from peerd.web.pages.notices import leave_notice
from peerd.web.pages.rendering import PageRequest
from peerd.web.pages.url_query import safe_path
from peerd.web.problems import STATUS_OF

BACK: Final = "back"


async def confirm_action(action: PageAction, page: PageRequest) -> Response:
    """What will happen, what is asked for, and a button that does it."""
    _require_right(page, action)
    prefilled = {name: value for name, value in page.query.pairs if name not in {"name", BACK}}
    call = ActionCall(page.client, key_of(page), prefilled)
    return await _form(page, action, call, await action.fields_of(call), back_of(page, action, call.key))


async def do_action(action: PageAction, page: PageRequest, fields: list[tuple[str, str]]) -> Response:
    """Do it, and go back with a notice; where it is refused, show the form again with the reason."""
    _require_right(page, action)
    values = dict(fields)
    back = safe_path(values.pop(BACK, None))
    call = ActionCall(page.client, key_of(page), values)
    try:
        done = await action.do(call)
    except (PeerdError, ValueError) as error:
        asked = await action.fields_of(call)
        status = (
            STATUS_OF.get(type(error), HTTPStatus.CONFLICT) if isinstance(error, PeerdError) else HTTPStatus.BAD_REQUEST
        )
        return await _form(page, action, call, asked, back or back_of(page, action, call.key), str(error), status)
    address = done.address or back or back_of(page, action, call.key)
    response = page.redirect(address)
    leave_notice(response, done.notice, done.undo)
    return response


def key_of(page: PageRequest) -> str:
    """What it acts on: the id of the path, or the name of the query."""
    key = page.request.path_params.get("key")
    return str(key) if key is not None else page.query.get("name", "") or ""


def back_of(page: PageRequest, action: PageAction, key: str) -> str:
    """The page that shows what the action acts on."""
    return safe_path(page.query.get(BACK)) or (action.subject.page(key) if key else f"/{action.subject}")


def _require_right(page: PageRequest, action: PageAction) -> None:
    if not action.is_for(page.actor):
        needed = f"it needs the right {action.right}" + (", of all queues" if action.needs_all_queues else "")
        raise NotPermitted(page.actor.name, action.id, needed)


async def _form(
    page: PageRequest,
    action: PageAction,
    call: ActionCall,
    fields: tuple[FormField, ...],
    back: str,
    problem: str | None = None,
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    title = f"{action.label}: {one_line(call.key, 60)}" if call.key else action.label
    return page.render(
        "confirm.html",
        title,
        status,
        action=action,
        address=action.address(call.key),
        effect=action.effect.format(key=call.key),
        warning=None if action.warning is None else await action.warning(call),
        fields=fields,
        values=call.values,
        problem=problem,
        back=back,
    )
