"""Workflows: what a step sees, what runs together, shapes, and what may be executed."""

import itertools
import pickle

import pytest
from hypothesis import given
from workflow_texts import WORKERS, workflows

from nsed_torch.conductor.workflow import Reason, Topology, Workflow, WorkflowError, check
from nsed_torch.conductor.workflow import WorkflowStep as Step


def flow(*accesses):
    """A workflow of one worker with these access entries."""
    return Workflow(tuple(Step(0, f"part {k}", access) for k, access in enumerate(accesses)))


def test_all_means_every_earlier_step():
    workflow = flow("all", (), "all", (1, 0, 1), ())
    assert [workflow.visible(k) for k in range(5)] == [(), (), (0, 1), (0, 1), ()]


def test_waves_of_an_example():
    assert flow((), (), (0,), "all", ()).waves() == ((0, 1, 4), (2,), (3,))
    assert Workflow().waves() == ()


@given(workflows())
def test_waves_are_an_order_in_which_everything_visible_is_there(workflow):
    waves = workflow.waves()
    assert sorted(itertools.chain(*waves)) == list(range(len(workflow.steps)))
    assert all(list(wave) == sorted(wave) for wave in waves)
    at = {k: w for w, wave in enumerate(waves) for k in wave}
    assert all(at[i] < at[k] for k in at for i in workflow.visible(k))


@given(workflows())
def test_no_order_has_fewer_waves(workflow):
    def is_chain(steps):
        return all(i in workflow.visible(k) for i, k in itertools.pairwise(steps))

    n = len(workflow.steps)
    subsets = itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(1, n + 1))
    assert len(workflow.waves()) == max(len(steps) for steps in subsets if is_chain(steps))


@pytest.mark.parametrize(
    ("accesses", "topology"),
    [
        ([], Topology.ACCEPT),
        ([()], Topology.SINGLE),
        (["all"], Topology.SINGLE),
        ([(), ()], Topology.PARALLEL),
        (["all", (), ()], Topology.PARALLEL),
        ([(), "all"], Topology.CHAIN),
        ([(), "all", "all"], Topology.CHAIN),
        ([(), (0,), (1,), (2,)], Topology.CHAIN),
        ([(), (), "all"], Topology.TREE),
        ([(), (), (1,), "all"], Topology.TREE),
        ([(), (0,), (), (2,), (1, 3)], Topology.TREE),
        ([(), (), (0, 1), "all"], Topology.TREE),
        ([(), (0,), (0,), "all"], Topology.GRAPH),  # the first feeds two
        ([(), (), (1,)], Topology.GRAPH),  # nobody reads the first
        ([(), "all", ()], Topology.GRAPH),  # nor the second here
    ],
)
def test_topology(accesses, topology):
    assert flow(*accesses).topology() == topology


def test_render_is_three_lines():
    workflow = Workflow((Step(2, 'Say "hé".\nThen stop.'), Step(0, "Check.", (0,)), Step(1, "Answer.", "all")))
    assert workflow.render() == (
        'model_id = [2, 0, 1]\nsubtasks = ["Say \\"hé\\".\\nThen stop.", "Check.", "Answer."]\n'
        'access_list = [[], [0], "all"]'
    )


FAULTS = [
    (Workflow(), Reason.NO_STEPS, "a step or more, got none"),
    (flow(*[()] * 6), Reason.TOO_MANY_STEPS, "at most 5 steps, got 6"),
    (
        Workflow((Step(True, "x"),)),
        Reason.BAD_WORKER,
        "step 0: expected a worker from 0 to 3 in model_id, got True",
    ),
    (Workflow((Step(1.0, "x"),)), Reason.BAD_WORKER, "got 1.0"),
    (Workflow((Step(4, "x"),)), Reason.UNKNOWN_WORKER, "got 4"),
    (Workflow((Step(-1, "x"),)), Reason.UNKNOWN_WORKER, "got -1"),
    (Workflow((Step(16**5000, "x"),)), Reason.UNKNOWN_WORKER, "got a huge number"),
    (Workflow((Step(0, None),)), Reason.BAD_SUBTASK, "got None"),
    (
        Workflow((Step(0, "\udc80"),)),
        Reason.BAD_SUBTASK,
        r"a text without surrogates in subtasks, got '\udc80'",
    ),
    (Workflow((Step(0, " \n"),)), Reason.EMPTY_SUBTASK, r"step 0: expected a text in subtasks, got ' \n'"),
    (flow((), (True,)), Reason.BAD_ACCESS, "from 0 in access_list, got [True]"),
    (flow((), [0]), Reason.BAD_ACCESS, "got [0]"),
    (flow((), "ALL"), Reason.BAD_ACCESS, "got 'ALL'"),
    (flow((), (-1,)), Reason.BAD_ACCESS, "got [-1]"),
    (flow((), (1,)), Reason.FORWARD_REFERENCE, "steps before step 1 in access_list, got [1]"),
    (flow((0,)), Reason.FORWARD_REFERENCE, "steps before step 0"),
]


@pytest.mark.parametrize(("workflow", "reason", "words"), FAULTS, ids=range(len(FAULTS)))
def test_check_names_the_fault(workflow, reason, words):
    with pytest.raises(WorkflowError) as caught:
        check(workflow, workers=WORKERS)
    assert caught.value.reason == reason
    assert words in str(caught.value)


@given(workflows())
def test_check_takes_what_is_valid(workflow):
    check(workflow, workers=WORKERS)


def test_limits_are_the_callers():
    check(Workflow(), workers=1, allow_empty=True)
    check(flow(*[()] * 6), workers=1, max_steps=6)
    with pytest.raises(WorkflowError, match="at most 1 steps, got 2"):
        check(flow((), ()), workers=1, max_steps=1)


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(WorkflowError(Reason.NO_LISTS, "expected lists")))
    assert (error.reason, str(error)) == (Reason.NO_LISTS, "expected lists")
