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
    "where do events come from?": ("cluster/recorder.py", "events"),
    "what is served over HTTP?": ("web/routes.py", "route table"),
    "who is the caller, and what may they do?": ("web/guard.py", "SubjectAccessReview"),
    "why was a node refused, or chosen?": ("engine/diagnosis.py", "refused"),
    "which plugins are there, and with which weights?": ("engine/registry.py", "predicate"),
    "which pods are evicted for another?": ("engine/preemption.py", "evict"),
    "which pod is next, and which waits for what?": ("placement/queue.py", "next"),
    "how does a decision become a binding, with its volumes?": ("placement/binding.py", "Volumes"),
    "where is room reserved for a pod that does not exist yet?": ("placement/reservations.py", "exist yet"),
    "how is a request for pods accepted?": ("placement/api/schedule_pod.py", "schedulePod"),
    "who may do what on the embedded API server?": ("apiserver/auth/rbac.py", "roles"),
    "how does an APIService reach another API server there?": ("apiserver/registry/api_services.py", "APIService"),
    "where does kubectl top get its numbers?": ("local/metrics.py", "kubectl top"),
    "which bound pods does a node reject?": ("nodes/admission.py", "admits"),
}
