// SPDX-License-Identifier: Apache-2.0

//go:build release

package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/floodwall/floodwall/e2e/schemas"
)

// statement is the part of the provenance that the test reads.
type statement struct {
	Type          string `json:"_type"`
	PredicateType string
	Subject       []resource
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string
			ExternalParameters   struct{ Version string }
			ResolvedDependencies []resource
		}
		RunDetails struct{ Builder struct{ ID string } }
	}
}

type resource struct {
	Name, URI string
	Digest    map[string]string
}

// attested checks the provenance and the bill of materials (SBOM): they must describe the files and the commit of the release, as docs/verify.md says.
func attested(s *shop) {
	read := func(suffix string) []byte {
		text, err := os.ReadFile(filepath.Join(s.files, "floodwall-"+version+suffix))
		if err != nil {
			s.t.Fatal(err)
		}
		return text
	}
	s.t.Run("provenance", func(t *testing.T) { s.with(t).provenance(read(".intoto.json")) })
	s.t.Run("bill", func(t *testing.T) { s.with(t).bill(read(".cdx.json")) })
}

func (s *shop) provenance(text []byte) {
	var of statement
	if err := json.Unmarshal(text, &of); err != nil {
		s.t.Fatal(err)
	}
	build := of.Predicate.BuildDefinition
	if of.Type != "https://in-toto.io/Statement/v1" || of.PredicateType != "https://slsa.dev/provenance/v1" || build.BuildType == "" ||
		of.Predicate.RunDetails.Builder.ID == "" || build.ExternalParameters.Version != version {
		s.t.Errorf("statement %+v", of)
	}
	var files []string
	for _, subject := range of.Subject {
		files = append(files, subject.Name)
		if content, err := os.ReadFile(filepath.Join(s.files, subject.Name)); err != nil || subject.Digest["sha256"] != hash(content) {
			s.t.Errorf("%s has another sum than the statement says: %v", subject.Name, err)
		}
	}
	entries, err := os.ReadDir(s.files)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); !strings.HasSuffix(name, ".minisig") && !strings.HasSuffix(name, ".intoto.json") && !slices.Contains(files, name) {
			s.t.Errorf("the statement is not about %s", name)
		}
	}
	want := map[string]string{"commit": strings.TrimSpace(s.must(s.tree, "git rev-parse HEAD"))}
	for _, name := range []string{"go.sum", "go.work.sum", "cmd/floodwall-lab/go.sum", "packaging/tools/go.sum"} {
		content, err := os.ReadFile(filepath.Join(s.tree, name))
		if err != nil {
			s.t.Fatal(err)
		}
		want[name] = hash(content)
	}
	for _, d := range build.ResolvedDependencies {
		if sum := want[d.Name]; sum != "" && sum != d.Digest["sha256"]+d.Digest["gitCommit"] {
			s.t.Errorf("%s: %v, want %s", d.Name, d.Digest, sum)
		}
		delete(want, d.Name)
	}
	if len(want) > 0 {
		s.t.Errorf("the statement lacks %v", want)
	}
	for _, uri := range []string{"pkg:golang/std@1.", "pkg:deb/debian/clang-19@", "pkg:deb/debian/libbpf-dev@"} {
		if !slices.ContainsFunc(build.ResolvedDependencies, func(d resource) bool { return strings.HasPrefix(d.URI, uri) }) {
			s.t.Errorf("the statement lacks %s", uri)
		}
	}
}

func (s *shop) bill(text []byte) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = schemas.CycloneDX(s.t).Validate(value)
	}
	if err != nil {
		s.t.Error(err)
	}
	var bill cdx.BOM
	if err := json.Unmarshal(text, &bill); err != nil {
		s.t.Fatal(err)
	}
	uses := map[string][]string{}
	for _, d := range *bill.Dependencies {
		uses[d.Ref] = *d.Dependencies
	}
	for ref, parts := range map[string][]string{
		"program:floodwall/amd64": {"pkg:golang/github.com/cilium/ebpf@v", "bpf:internal/compile/image/floodwall_bpfel.o.gz", "pkg:deb/debian/nftables",
			"pkg:golang/std@1."},
		"program:floodwall-lab/arm64":                     {"bpf:internal/lab/lab_bpfel.o"},
		"bpf:internal/compile/image/floodwall_bpfel.o.gz": {"pkg:deb/debian/libbpf-dev"},
	} {
		for _, part := range parts {
			if !slices.ContainsFunc(uses[ref], func(u string) bool { return strings.HasPrefix(u, part) }) {
				s.t.Errorf("%s depends on %v, and not on %s", ref, uses[ref], part)
			}
		}
	}
	programs := 0
	for _, c := range *bill.Components {
		name, arch, found := strings.Cut(strings.TrimPrefix(c.BOMRef, "program:"), "/")
		if !found || !strings.HasPrefix(c.BOMRef, "program:") {
			continue
		}
		programs++
		of := "floodwall-" + version + "-linux-" + arch
		content := s.must(s.files, `tar -xzOf "$1" "$2"`, of+".tar.gz", of+"/"+name)
		if got := (*c.Hashes)[0].Value; got != hash([]byte(content)) {
			s.t.Errorf("%s: %s is not the sum of what the archive has", c.BOMRef, got)
		}
	}
	if programs != 8 {
		s.t.Errorf("%d programs", programs)
	}
}

func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
