// SPDX-License-Identifier: Apache-2.0

// Command manifest reads files with Kubernetes manifests, and fails when one has a field that its type does not have, a value of
// another type, or a type that it does not know:
//
//	manifest FILE...
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// known has the types by version and kind.
var known = map[string]func() any{
	"v1/ConfigMap":      func() any { return new(core.ConfigMap) },
	"apps/v1/DaemonSet": func() any { return new(apps.DaemonSet) },
}

func main() {
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

func check(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	found := 0
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; found++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var kind meta.TypeMeta
		if err := strict.Unmarshal(document, &kind); err != nil {
			return err
		}
		name := kind.APIVersion + "/" + kind.Kind
		if known[name] == nil {
			return fmt.Errorf("unknown type %s", name)
		}
		if err := strict.UnmarshalStrict(document, known[name]()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if found == 0 {
		return errors.New("no manifest")
	}
	return nil
}
