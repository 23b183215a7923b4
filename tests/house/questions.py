"""A stranger's questions, each with the file that answers it and a word that its module docstring must hold.

The same questions stand in ARCHITECTURE.md's table. A file that moves, or turns to something else, fails the test.
"""

from typing import Final

QUESTIONS: Final = {
    "what is a capability, and what is it built from?": ("runtime.py", "capability"),
    "which capabilities are there, and how are they put together?": ("app.py", "registry"),
    "how do capabilities start, lead and stop?": ("lifecycle.py", "stand by"),
    "how are admission webhooks served, and who issues their certificates?": ("webhooks.py", "certificates"),
    "how is the API server reached, and as whom?": ("cluster/kubeconfig.py", "service account"),
    "what can go wrong with a call?": ("cluster/errors.py", "Unavailable"),
    "how does a watch resume after a break?": ("cluster/watch.py", "watch"),
    "what does the cluster look like right now?": ("cluster/mirror.py", "in memory"),
    "which key is reconciled when, and how often?": ("cluster/workqueue.py", "key"),
    "how is something written?": ("cluster/writer.py", "intent"),
    "why can two leaders not both write?": ("cluster/lease.py", "one holder"),
    "which settings are there, and where do their values come from?": ("settings.py", "environment"),
    "what does a command of `fairlead` do?": ("cli/main.py", "command"),
    "where do events come from?": ("cluster/recorder.py", "events"),
    "what is served over HTTP?": ("web/routes.py", "route table"),
    "who is the caller, and what may they do?": ("web/guard.py", "SubjectAccessReview"),
    "how is one pod decided, and what is kept for the next one like it?": ("engine/cycle.py", "one decision"),
    "how are shares of GPUs and their fragmentation counted?": ("engine/gpus.py", "thousandths"),
    "why was a node refused, or chosen?": ("engine/diagnosis.py", "refused"),
    "which plugins are there, and with which weights?": ("engine/registry.py", "predicate"),
    "which pods are evicted for another?": ("engine/preemption.py", "evict"),
    "which pod is next, and which waits for what?": ("placement/queue.py", "next"),
    "how does a decision become a binding, with its volumes?": ("placement/binding.py", "Volumes"),
    "where is room reserved for a pod that does not exist yet?": ("placement/reservations.py", "exist yet"),
    "how is a request for pods accepted?": ("placement/api/schedule_pod.py", "schedulePod"),
    "which job is next, and what does its queue allow?": ("jobs/order.py", "order"),
    "what does the webhook add to a pod, and why?": ("data/mutate.py", "verdict"),
    "when does a round start, and who decides that it failed?": ("tasks/schedule.py", "start"),
    "which base becomes a node, and how alive is it?": ("modules/bases.py", "base"),
    "how does the embedded API server call webhooks, and what does it admit itself?": (
        "apiserver/admission/chain.py",
        "admission",
    ),
    "what keeps one large request from delaying the others there?": ("apiserver/heavy.py", "off the loop"),
    "who may do what on the embedded API server?": ("apiserver/auth/rbac.py", "roles"),
    "how does an APIService reach another API server there?": ("apiserver/registry/api_services.py", "APIService"),
    "where does kubectl top get its numbers?": ("local/metrics.py", "kubectl top"),
    "how does a virtual node stay Ready, and what happens to its pods when it is gone?": (
        "nodes/kubelet.py",
        "lease renewer",
    ),
    "which bound pods does a node reject?": ("nodes/admission.py", "admits"),
}
