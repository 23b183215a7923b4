//go:build ignore

// Prints the fields of the server's own types in their order: it shows them when it refuses a value or a change.
// Each is its Go name, its name in JSON (found in the v1 type of the same name) and its form. Run by facts.py.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	devices "k8s.io/kubernetes/pkg/apis/resource"
)

var types = map[string][][3]string{}

func form(t, like reflect.Type) string {
	if t == reflect.TypeOf(resource.Quantity{}) {
		return "quantity"
	}
	if t == reflect.TypeOf(intstr.IntOrString{}) {
		return "intstr"
	}
	for like != nil && like.Kind() == reflect.Pointer && t.Kind() != reflect.Pointer {
		like = like.Elem()
	}
	below := func() reflect.Type {
		if like == nil || like.Kind() != t.Kind() {
			return nil
		}
		return like.Elem()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + form(t.Elem(), below())
	case reflect.Slice:
		return "[]" + form(t.Elem(), below())
	case reflect.Map:
		return "{}" + form(t.Elem(), below())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Struct:
		// Types that the API shares with it print themselves as JSON does.
		if !strings.Contains(t.PkgPath(), "/pkg/apis/") || !strings.HasPrefix(t.PkgPath(), "k8s.io/kubernetes/") {
			return "json"
		}
		visit(t, like)
		return "@" + t.Name()
	}
	return "int"
}

// names finds how a Go field is called in JSON, inlined structs included.
func names(t reflect.Type, into map[string]reflect.StructField) {
	for i := 0; t != nil && i < t.NumField(); i++ {
		f := t.Field(i)
		if f.Anonymous && strings.Split(f.Tag.Get("json"), ",")[0] == "" && f.Type.Kind() == reflect.Struct {
			names(f.Type, into)
			continue
		}
		into[f.Name] = f
	}
}

func list(t reflect.Type, known map[string]reflect.StructField) (found [][3]string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		if f.Anonymous && f.Type.PkgPath() != t.PkgPath() {
			// A template's metadata.
			found = append(found, [3]string{"", "metadata", "inline"})
			continue
		}
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			found = append(found, list(f.Type, known)...)
			continue
		}
		named, ok := known[f.Name]
		tag := ""
		var like reflect.Type
		if ok {
			tag, like = strings.Split(named.Tag.Get("json"), ",")[0], named.Type
		}
		found = append(found, [3]string{f.Name, tag, form(f.Type, like)})
	}
	return
}

func visit(t, like reflect.Type) {
	if _, done := types[t.Name()]; done {
		return
	}
	types[t.Name()] = nil
	known := map[string]reflect.StructField{}
	// What the server keeps in the security context stands in the spec itself in v1.
	if t == reflect.TypeOf(core.PodSecurityContext{}) {
		names(reflect.TypeOf(v1.PodSpec{}), known)
	}
	if like != nil && like.Kind() == reflect.Struct {
		names(like, known)
	}
	types[t.Name()] = list(t, known)
}

func main() {
	for _, pair := range [][2]any{
		{core.PodSpec{}, v1.PodSpec{}},
		{core.PodTemplateSpec{}, v1.PodTemplateSpec{}},
		{core.PersistentVolumeSource{}, v1.PersistentVolumeSource{}},
		{core.PersistentVolumeClaimSpec{}, v1.PersistentVolumeClaimSpec{}},
		{core.ServiceSpec{}, v1.ServiceSpec{}},
		{core.Taint{}, v1.Taint{}},
		{batch.JobSpec{}, batchv1.JobSpec{}},
		{devices.ResourceClaimSpec{}, resourcev1.ResourceClaimSpec{}},
		{devices.ResourceClaimStatus{}, resourcev1.ResourceClaimStatus{}},
		{devices.ResourceClaimTemplateSpec{}, resourcev1.ResourceClaimTemplateSpec{}},
		{devices.ResourceSliceSpec{}, resourcev1.ResourceSliceSpec{}},
	} {
		visit(reflect.TypeOf(pair[0]), reflect.TypeOf(pair[1]))
	}
	_ = json.NewEncoder(os.Stdout).Encode(types)
}
