//go:build ignore

// Asks the plugins of kube-scheduler 1.36.4 about clusters read as JSON lines and writes the lines back with their
// answers under "expect", in the form of the vectors beside it. Built by hand in a copy of tests/rigs/kube (same go.mod):
// `go build -trimpath -mod=mod -o recorder recorder.go`. Never part of a build of ours.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	plfeature "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

type vector struct {
	ID           string                          `json:"id"`
	Kind         string                          `json:"kind"`
	Nodes        []*v1.Node                      `json:"nodes"`
	Pods         []*v1.Pod                       `json:"pods"`
	Pod          *v1.Pod                         `json:"pod"`
	Namespaces   []*v1.Namespace                 `json:"namespaces"`
	Services     []*v1.Service                   `json:"services"`
	ReplicaSets  []*appsv1.ReplicaSet            `json:"replicasets"`
	StatefulSets []*appsv1.StatefulSet           `json:"statefulsets"`
	RCs          []*v1.ReplicationController     `json:"replicationcontrollers"`
	PVCs         []*v1.PersistentVolumeClaim     `json:"pvcs"`
	PVs          []*v1.PersistentVolume          `json:"pvs"`
	SCs          []*storagev1.StorageClass       `json:"storageclasses"`
	CSINodes     []*storagev1.CSINode            `json:"csinodes"`
	CSIDrivers   []*storagev1.CSIDriver          `json:"csidrivers"`
	Capacities   []*storagev1.CSIStorageCapacity `json:"csistoragecapacities"`
	Attachments  []*storagev1.VolumeAttachment   `json:"volumeattachments"`
	PDBs         []*policyv1.PodDisruptionBudget `json:"pdbs"`
}

type nominator struct{}

func (nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
func (nominator) NominatedPodsForNode(string) []fwk.PodInfo                     { return nil }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func word(c fwk.Code) string { return c.String() }

func main() {
	metrics.Register()
	in := bufio.NewReaderSize(os.Stdin, 1<<24)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	dec := json.NewDecoder(in)
	for dec.More() {
		var raw map[string]json.RawMessage
		must(dec.Decode(&raw))
		all, _ := json.Marshal(raw)
		var v vector
		must(json.Unmarshal(all, &v))
		res := func() (res any) {
			defer func() {
				if r := recover(); r != nil {
					res = map[string]any{"panic": fmt.Sprint(r)}
				}
			}()
			return judge(&v)
		}()
		b, err := json.Marshal(res)
		must(err)
		raw["expect"] = b
		line, _ := json.Marshal(raw)
		out.Write(line)
		out.WriteByte('\n')
	}
}

func judge(v *vector) any {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var objs []runtime.Object
	add := func(o runtime.Object) { objs = append(objs, o) }
	for _, o := range v.Namespaces {
		add(o)
	}
	for _, o := range v.Services {
		add(o)
	}
	for _, o := range v.ReplicaSets {
		add(o)
	}
	for _, o := range v.StatefulSets {
		add(o)
	}
	for _, o := range v.RCs {
		add(o)
	}
	for _, o := range v.PVCs {
		add(o)
	}
	for _, o := range v.PVs {
		add(o)
	}
	for _, o := range v.SCs {
		add(o)
	}
	for _, o := range v.CSINodes {
		add(o)
	}
	for _, o := range v.CSIDrivers {
		add(o)
	}
	for _, o := range v.Capacities {
		add(o)
	}
	for _, o := range v.Attachments {
		add(o)
	}
	for _, o := range v.PDBs {
		add(o)
	}
	add(v.Pod)
	client := fake.NewClientset(objs...)
	factory := informers.NewSharedInformerFactory(client, 0)
	listed := map[string]bool{}
	for _, n := range v.Nodes {
		listed[n.Name] = true
	}
	var live []*v1.Pod
	for _, p := range v.Pods {
		if listed[p.Spec.NodeName] && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			live = append(live, p)
		}
	}
	snapshot := internalcache.NewSnapshot(live, v.Nodes)
	logger := klog.FromContext(ctx)
	claims := assumecache.NewAssumeCache(logger, factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	tracker, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{SliceInformer: factory.Resource().V1().ResourceSlices(), ClassInformer: factory.Resource().V1().DeviceClasses(), KubeClient: client})
	must(err)
	dra := dynamicresources.NewDRAManager(ctx, claims, tracker, factory)
	cfg, err := latest.Default()
	must(err)
	profile := cfg.Profiles[0]
	registry := plugins.NewInTreeRegistry()
	f, err := frameworkruntime.NewFramework(ctx, registry, &profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithSharedDRAManager(dra),
		frameworkruntime.WithSnapshotSharedLister(snapshot), frameworkruntime.WithPodNominator(nominator{}), frameworkruntime.WithParallelism(4),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithEventRecorder(events.NewFakeRecorder(100)))
	must(err)
	args := map[string]runtime.Object{}
	for _, pc := range profile.PluginConfig {
		args[pc.Name] = pc.Args
	}
	build := func(name string) fwk.Plugin {
		p, err := registry[name](ctx, args[name], f)
		must(err)
		return p
	}
	eff := profile.Plugins.MultiPoint.Enabled
	var names []string
	weights := map[string]int32{}
	for _, e := range eff {
		names = append(names, e.Name)
		weights[e.Name] = e.Weight
	}
	type built struct {
		name string
		p    fwk.Plugin
	}
	var all []built
	for _, n := range names {
		all = append(all, built{n, build(n)})
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())

	nodeInfos, err := snapshot.NodeInfos().List()
	must(err)
	sort.Slice(nodeInfos, func(i, j int) bool { return nodeInfos[i].Node().Name < nodeInfos[j].Node().Name })
	state := framework.NewCycleState()
	filter := map[string]map[string]any{}
	codes := map[string]map[string]string{}
	bad := map[string]bool{}
	var order []string
	narrowed := map[string]any{}
	var firstReject string
	allowed := map[string]bool(nil)
	failures := map[string][]string{}
	for _, b := range all {
		fp, ok := b.p.(fwk.FilterPlugin)
		if !ok {
			continue
		}
		order = append(order, b.name)
		fm, cm := map[string]any{}, map[string]string{}
		var pre *fwk.Status
		skip := false
		if pp, ok := b.p.(fwk.PreFilterPlugin); ok {
			r, st := pp.PreFilter(ctx, state, v.Pod, nodeInfos)
			if st.IsSkip() {
				skip = true
			} else if !st.IsSuccess() {
				pre = st
				if firstReject == "" {
					firstReject = st.Message()
				}
			} else if r != nil && !r.AllNodes() {
				narrowed[b.name] = r.NodeNames.UnsortedList()
				allowed = map[string]bool{}
				for n := range r.NodeNames {
					allowed[n] = true
				}
			}
		}
		for _, ni := range nodeInfos {
			name := ni.Node().Name
			var st *fwk.Status
			if pre != nil {
				st = pre
			} else if !skip {
				st = fp.Filter(ctx, state, v.Pod, ni)
			}
			if st.IsSuccess() {
				fm[name] = "ok"
			} else {
				rs := append([]string{}, st.Reasons()...)
				sort.Strings(rs)
				fm[name] = rs
				bad[name] = true
				if _, ok := failures[name]; !ok {
					failures[name] = rs
				}
			}
			cm[name] = word(st.Code())
		}
		filter[b.name], codes[b.name] = fm, cm
	}
	feasible := []string{}
	var feasibleInfos []fwk.NodeInfo
	for _, ni := range nodeInfos {
		n := ni.Node().Name
		if !bad[n] && (allowed == nil || allowed[n]) {
			feasible = append(feasible, n)
			feasibleInfos = append(feasibleInfos, ni)
		}
	}
	expect := map[string]any{"filter": filter, "codes": codes, "feasible": feasible}
	if len(narrowed) > 0 {
		expect["prefilter_nodes"] = narrowed
	}
	// the framework's own cycle, for messages and preemption
	diag := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	cs := framework.NewCycleState()
	preRes, st, unsched := f.RunPreFilterPlugins(ctx, cs, v.Pod)
	nodeCodes := map[string]string{}
	if len(v.Nodes) == 0 {
		expect["message"] = "no nodes available to schedule pods"
	} else {
		if !st.IsSuccess() {
			diag.NodeToStatus.SetAbsentNodesStatus(st)
			diag.PreFilterMsg = st.Message()
			for _, ni := range nodeInfos {
				nodeCodes[ni.Node().Name] = word(st.Code())
			}
		} else {
			if !preRes.AllNodes() {
				diag.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", unsched.UnsortedList())))
			}
			for _, ni := range nodeInfos {
				n := ni.Node().Name
				if !preRes.AllNodes() && !preRes.NodeNames.Has(n) {
					nodeCodes[n] = "UnschedulableAndUnresolvable"
					continue
				}
				s := f.RunFilterPlugins(ctx, cs, v.Pod, ni)
				if !s.IsSuccess() {
					diag.NodeToStatus.Set(n, s)
					nodeCodes[n] = word(s.Code())
				}
			}
		}
		if len(feasible) == 0 {
			fe := &framework.FitError{Pod: v.Pod, NumAllNodes: len(nodeInfos), Diagnosis: diag}
			expect["message"] = fe.Error()
		} else {
			expect["message"] = nil
		}
	}
	if v.Kind == "preemption" {
		return preempt(ctx, v, f, cs, &diag, expect, nodeCodes, args, factory, len(feasible) == 0)
	}
	scores := map[string]map[string][]int64{}
	total := map[string]int64{}
	skipped := []string{}
	for _, n := range feasible {
		total[n] = 0
	}
	for _, b := range all {
		sp, ok := b.p.(fwk.ScorePlugin)
		if !ok || len(feasible) == 0 {
			continue
		}
		if ps, ok := b.p.(fwk.PreScorePlugin); ok {
			if ps.PreScore(ctx, state, v.Pod, feasibleInfos).IsSkip() {
				skipped = append(skipped, b.name)
				continue
			}
		}
		list := fwk.NodeScoreList{}
		m := map[string][]int64{}
		for _, ni := range feasibleInfos {
			s, st := sp.Score(ctx, state, v.Pod, ni)
			if !st.IsSuccess() {
				panic(b.name + st.Message())
			}
			list = append(list, fwk.NodeScore{Name: ni.Node().Name, Score: s})
			m[ni.Node().Name] = []int64{s, s}
		}
		if ext := sp.ScoreExtensions(); ext != nil {
			ext.NormalizeScore(ctx, state, v.Pod, list)
			for _, e := range list {
				m[e.Name][1] = e.Score
			}
		}
		scores[b.name] = m
		for _, e := range list {
			total[e.Name] += e.Score * int64(weights[b.name])
		}
	}
	best := []string{}
	var top int64 = -1
	for _, n := range feasible {
		if total[n] > top {
			top = total[n]
			best = []string{}
		}
		if total[n] == top {
			best = append(best, n)
		}
	}
	expect["scores"], expect["total"], expect["score_skipped"], expect["best"] = scores, total, skipped, best
	return expect
}

func preempt(ctx context.Context, v *vector, f framework.Framework, cs fwk.CycleState, diag *framework.Diagnosis, expect map[string]any, nodeCodes map[string]string, args map[string]runtime.Object, factory informers.SharedInformerFactory, none bool) any {
	if !none {
		return map[string]any{"fits": true}
	}
	dp, err := defaultpreemption.New(ctx, args["DefaultPreemption"], f, plfeature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	must(err)
	res := map[string]any{"message": expect["message"], "node_codes": nodeCodes, "candidates": map[string]any{}, "nominated": nil, "victims": []string{}, "pdb_violations": 0}
	if ok, msg := dp.PodEligibleToPreemptOthers(ctx, v.Pod, diag.NodeToStatus.Get(v.Pod.Status.NominatedNodeName)); !ok {
		res["postfilter_code"], res["postfilter_message"] = "Unschedulable", "no new claims to deallocate, preemption: "+msg
		return res
	}
	lister := f.SnapshotSharedLister().NodeInfos()
	potential, err := diag.NodeToStatus.NodesForStatusCode(lister, fwk.Unschedulable)
	must(err)
	all, _ := lister.List()
	statuses := framework.NewDefaultNodeToStatus()
	key := func(p *v1.Pod) string { return p.Namespace + "/" + p.Name }
	if len(potential) > 0 {
		cands, sts, err := dp.Evaluator.DryRunPreemption(ctx, cs, v.Pod, potential, v.PDBs, 0, int32(len(potential)))
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		statuses = sts
		if len(cands) > 0 {
			m := map[string]any{}
			for _, c := range cands {
				vs := []string{}
				for _, p := range c.Victims().Pods {
					vs = append(vs, key(p))
				}
				m[c.Name()] = map[string]any{"victims": vs, "pdb_violations": c.Victims().NumPDBViolations}
			}
			b := dp.Evaluator.SelectCandidate(ctx, cands)
			vs := []string{}
			for _, p := range b.Victims().Pods {
				vs = append(vs, key(p))
			}
			sort.Strings(vs)
			res["candidates"], res["nominated"], res["victims"], res["pdb_violations"] = m, b.Name(), vs, b.Victims().NumPDBViolations
			res["postfilter_code"], res["postfilter_message"] = "Success", ""
			return res
		}
	}
	fe := &framework.FitError{Pod: v.Pod, NumAllNodes: len(all), Diagnosis: framework.Diagnosis{NodeToStatus: statuses}}
	fe.Diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Preemption is not helpful for scheduling"))
	res["postfilter_code"], res["postfilter_message"] = "Unschedulable", "no new claims to deallocate, preemption: "+fe.Error()
	return res
}
