//go:build ignore

// Prints what the API's Go types say and OpenAPI does not: pointers, omitempty, the names of named types (they are in
// the server's error texts) and protobuf's field numbers. Run by facts.py with `go run`, never part of a build.
package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type field struct {
	Type     string `json:"type"`
	Flags    string `json:"flags"`
	Protobuf []int  `json:"protobuf"`
	Inlined  string `json:"inlined"`
}

var types = map[string]map[string]field{}

func key(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

func number(tag string) int {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(parts[1])
	return n
}

// add puts the fields of struct t into the map; those of inlined structs appear under their own names.
func add(t reflect.Type, into map[string]field, path []int, inlined string) {
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		here := append(append([]int{}, path...), number(f.Tag.Get("protobuf")))
		ft, flags := f.Type, ""
		if ft.Kind() == reflect.Pointer {
			flags, ft = "p", ft.Elem()
		}
		if tag[0] == "" && f.Anonymous && ft.Kind() == reflect.Struct {
			add(ft, into, here, f.Name)
			visit(ft)
			continue
		}
		if tag[0] == "-" || tag[0] == "" || f.PkgPath != "" {
			continue
		}
		for _, option := range tag[1:] {
			switch option {
			case "omitempty":
				flags += "o"
			case "omitzero":
				flags += "z"
			}
		}
		into[tag[0]] = field{Type: ft.String(), Flags: flags, Protobuf: here, Inlined: inlined}
		visit(ft)
	}
}

func visit(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		visit(t.Elem())
	case reflect.Struct:
		if _, known := types[key(t)]; !known {
			types[key(t)] = map[string]field{}
			add(t, types[key(t)], nil, "")
		}
	}
}

func main() {
	all := runtime.NewScheme()
	_ = scheme.AddToScheme(all)
	_ = apiextensions.AddToScheme(all)
	_ = apiregistration.AddToScheme(all)
	for _, t := range all.AllKnownTypes() {
		visit(t)
	}
	_ = json.NewEncoder(os.Stdout).Encode(types)
}
