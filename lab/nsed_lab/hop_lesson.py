"""To do hops of composite questions of the laboratory as a worker of a workflow reads them."""

from nsed_lab.composite import KINDS, composite_tasks
from nsed_torch.tuning.hop_lesson import HopLesson
from nsed_torch.tuning.lessons import LessonPlan


def hop_lesson(plan: LessonPlan, *, step_share: float, train: int = 3000, held_out: int = 100) -> HopLesson:
    """Hops of the kinds that the families are, of so many composite questions, beside the families' own tasks."""
    families = {options.get("family", name) for name, options in plan.families.items()}
    kinds = [kind for kind, (family, _) in KINDS.items() if family in families]
    learned, tested = plan.seeds["train"], plan.seeds["held_out"]
    hops = composite_tasks(train, learned, singles=0)
    others_hops = composite_tasks(held_out, tested, singles=0, unlike={learned: train})
    return HopLesson(plan.answers(), hops, others_hops, kinds, step_share)
