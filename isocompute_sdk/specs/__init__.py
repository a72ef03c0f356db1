"""What users write: budgets, recipes, sweeps and studies, in Python or YAML."""

from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.budget import UNITS, Budget, Unit
from isocompute_sdk.specs.recipe import PRESET_NAMES, PresetName, Recipe
from isocompute_sdk.specs.run import Data, Evaluation, Hardware, RunSpec
from isocompute_sdk.specs.study import ExecutorSpec, ProblemSource, Study, Supervision
from isocompute_sdk.specs.sweep import Allocation, Sweep
from isocompute_sdk.specs.syntax.plain_yaml import dump_spec, json_schema, load_spec, load_study, parse_spec
from isocompute_sdk.specs.syntax.quantities import Count, Quantity, parse_count
from isocompute_sdk.specs.throughput import Throughput

__all__ = [
    "PRESET_NAMES",
    "UNITS",
    "Allocation",
    "Budget",
    "Count",
    "Data",
    "Evaluation",
    "ExecutorSpec",
    "Hardware",
    "PresetName",
    "ProblemSource",
    "Quantity",
    "Recipe",
    "RunSpec",
    "Spec",
    "Study",
    "Supervision",
    "Sweep",
    "Throughput",
    "Unit",
    "dump_spec",
    "json_schema",
    "load_spec",
    "load_study",
    "parse_count",
    "parse_spec",
]
