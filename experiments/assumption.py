"""An assumption: a parameter that no publication states, with the values that a sweep tries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from experiments.problems import DECISIVE
from experiments.scenario import Scenario, ScenarioError, Strict, checked, read

FOLDER = Path(__file__).parent / "assumptions"


class Assumption(Strict):
    """One free parameter.

    Attributes:
        title: name of the parameter.
        about: why the parameter is free, and what it affects, in one or two sentences.
        scenarios: scenarios whose verdicts it may change.
        figures: a further measure to show, by scenario.
        values: what each value changes in these scenarios, by its label. A key is dotted, `*` is each entry of a list,
            and a text such as `x2` multiplies what is there. One value changes nothing: it is the default.
    """

    name: str = ""
    title: str = Field(min_length=1)
    about: str = Field(min_length=1)
    scenarios: tuple[str, ...] = DECISIVE
    figures: dict[str, str] = Field(default_factory=dict)
    values: dict[str, dict[str, Any]] = Field(min_length=2)

    def with_value(self, label: str, scenario: Scenario) -> Scenario:
        """Return the scenario with a value of the assumption.

        Raises:
            ScenarioError: a key does not exist, or its value is invalid.
        """
        where = f"{self.name}: {label}: {scenario.name}"
        document = scenario.model_dump(mode="json")
        for key, value in self.values[label].items():
            try:
                _put(document, key.split("."), value)
            except (KeyError, IndexError, TypeError, ValueError):
                raise ScenarioError(f"{where}: {key} cannot be set") from None
        return checked(document, Scenario, where)

    def default(self, scenarios: dict[str, Scenario]) -> str:
        """Return the label of the value that the scenarios have.

        Raises:
            ScenarioError: not exactly one value leaves the scenarios unchanged, or a scenario does not exist.
        """
        missing = {*self.scenarios, *self.figures} - scenarios.keys()
        if missing:
            raise ScenarioError(f"{self.name}: no scenario {', '.join(sorted(missing))}")
        swept = [scenarios[name] for name in (*self.scenarios, *self.figures)]
        same = [label for label in self.values if all(self.with_value(label, given) == given for given in swept)]
        if len(same) != 1:
            raise ScenarioError(f"{self.name}: {len(same)} values are as in the scenarios, one has to be")
        return same[0]


def load_all(folder: Path = FOLDER) -> dict[str, Assumption]:
    """Return the assumptions of a folder by name.

    Raises:
        ScenarioError: with the file, and the key or line that is wrong.
    """
    return {file.stem: read(file, Assumption) for file in sorted(folder.glob("*.toml"))}


def _put(node: Any, path: list[str], value: Any) -> None:
    key, *rest = path
    if key == "*":
        places: list[Any] = list(range(len(node)))
    else:
        places = [int(key) if isinstance(node, list) else key]
    for place in places:
        if rest:
            _put(node[place], rest, value)
        else:
            node[place] = _times(node[place], value) if isinstance(value, str) else value


def _times(present: float, factor: str) -> float:
    if not factor.startswith("x"):
        raise ValueError(factor)
    product = present * float(factor[1:])
    return max(1, round(product)) if isinstance(present, int) else product
