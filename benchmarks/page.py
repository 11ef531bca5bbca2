"""Write what was measured last into docs/performance.md, and its pictures: `python -m benchmarks.page`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scripts.drawing import FOLDER, PALETTES, Drawing, Palette

from benchmarks.measure import ROOT, Comparison, Taken, median
from benchmarks.tables import figure, memory, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = ROOT / "docs" / "performance.md"
RESULTS = ROOT / ".benchmarks"


def main() -> None:
    """Renew the tables between the markers of the parts that were measured, and draw their pictures."""
    text = PAGE.read_text(encoding="utf-8")
    for result in sorted(RESULTS.glob("*.json")):
        found = json.loads(result.read_text(encoding="utf-8"))
        comparisons = [read(each) for each in found["comparisons"]]
        content = [picture(found["part"]), table(comparisons), circumstances(found)]
        text = renewed(text, found["part"], "\n\n".join(content))
        for mode, colours in PALETTES.items():
            file = FOLDER / f"benchmark-{found['part']}-{mode}.svg"
            file.write_text(bars(found["part"], comparisons, colours), encoding="utf-8")
    PAGE.write_text(text, encoding="utf-8")


def read(document: dict[str, Any]) -> Comparison:
    """Return a comparison as a result file holds it."""
    taken = {name: [Taken(**each) for each in repetitions] for name, repetitions in document["taken"].items()}
    return Comparison(**document | {"taken": taken})


def renewed(text: str, part: str, content: str) -> str:
    """Return the page with this between the markers of the part."""
    begin, end = f"<!-- benchmark-{part} -->\n", f"<!-- /benchmark-{part} -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{content}\n\n{end}{rest.partition(end)[2]}"


def picture(part: str) -> str:
    """Return the picture of a part as the page shows it."""
    name = f"pictures/benchmark-{part}"
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{name}-dark.svg">\n'
        f'  <img src="{name}-light.svg" alt="Seconds of {part} as bars; the table below has the figures.">\n</picture>'
    )


def table(comparisons: Sequence[Comparison]) -> str:
    """Return a Markdown table: seconds of every subject, memory of the first, the goal and whether it is reached."""
    measured = [each for each in comparisons if each.taken]
    subjects = list(dict.fromkeys(name for each in measured for name in each.taken))
    lines = [["", *(f"{name}, s" for name in subjects), "peak memory, MiB", "goal", ""]]
    for each in measured:
        seconds = [figure(each.taken[name]) if name in each.taken else "" for name in subjects]
        lines.append([each.name, *seconds, memory(next(iter(each.taken.values()))), verdict(each), each.remark])
    filled = [n for n in range(len(lines[0])) if n <= len(subjects) or any(line[n] for line in lines[1:])]
    lines = [[line[n] for n in filled] for line in lines]
    lines.insert(1, ["---"] * len(filled))
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    rest = [
        f"{each.name}: {name} {value}." for each in comparisons if not each.taken for name, value in each.notes.items()
    ]
    return "\n\n".join([rows, *rest])


def circumstances(found: dict[str, Any]) -> str:
    """Return in a sentence how it was measured and on what."""
    about = found["machine"]
    java = about["java"].splitlines()[0].replace('"', "")
    return (
        f"Median (smallest-largest) of {found['repetitions']} repetitions (one where no range is given) at commit "
        f"`{found['commit']}`, {found['at'][:10]}, on {about['processor']}, {about['memory']}, {about['system']}, "
        f"Python {about['python']}, {java}; load of the machine before {about['load before']}."
    )


def bars(part: str, comparisons: Sequence[Comparison], colours: Palette) -> str:
    """Return a picture: the median seconds of every subject as bars, a group for each comparison."""
    measured = [each for each in comparisons if each.taken]
    rows = sum(len(each.taken) for each in measured)
    most = max(median(taken) for each in measured for taken in each.taken.values())
    drawing = Drawing(760, 40 + 20 * rows + 26 * len(measured), colours, f"Seconds of {part}")
    y = 24.0
    for each in measured:
        drawing.text(16, y, each.name, bold=True)
        y += 8
        for number, (name, taken) in enumerate(each.taken.items()):
            colour = (colours.accent, colours.dim, colours.good)[number % 3]
            drawing.text(150, y + 11, name, size=11, colour=colours.dim)
            drawing.box(270, y, max(2.0, 400 * median(taken) / most), 13, colour=colour, fill=colour)
            drawing.text(278 + 400 * median(taken) / most, y + 11, f"{median(taken):.3g} s", size=11)
            y += 20
        y += 18
    return drawing.svg()


if __name__ == "__main__":
    main()
