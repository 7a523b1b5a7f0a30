// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = "https://" + project + "/docs/verify.md#provenance" // explains the parameters
	builder       = "https://" + project + "/scripts/release"           // on a maintainer's machine; no service vouches for it
)

// tools are the Debian packages with which the C was compiled again. The result was the same as in the commit.
var tools = []string{"clang-19", "llvm-19", "libbpf-dev", "linux-libc-dev"}

func writeProvenance(w io.Writer, version, tree, files, began string) error {
	seconds, err := strconv.ParseInt(began, 10, 64)
	if err != nil {
		return fmt.Errorf("the time: %w", err)
	}
	materials, err := materials(version, tree)
	if err != nil {
		return err
	}
	epoch, err := output(tree, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	outside, err := structpb.NewStruct(map[string]any{"version": version, "repository": "https://" + project})
	if err != nil {
		return err
	}
	inside, err := structpb.NewStruct(map[string]any{"SOURCE_DATE_EPOCH": epoch, "GOFLAGS": "-trimpath -tags=nethttpomithttp2", "CGO_ENABLED": "0"})
	if err != nil {
		return err
	}
	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: buildType, ExternalParameters: outside, InternalParameters: inside, ResolvedDependencies: materials},
		RunDetails: &slsa.RunDetails{
			Builder:  &slsa.Builder{Id: builder},
			Metadata: &slsa.BuildMetadata{StartedOn: timestamppb.New(time.Unix(seconds, 0)), FinishedOn: timestamppb.New(time.Now().Truncate(time.Second))},
		},
	}
	if err := predicate.Validate(); err != nil {
		return err
	}
	of, err := structure(predicate)
	if err != nil {
		return err
	}
	subjects, err := subjects(files)
	if err != nil {
		return err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: of}
	if err := statement.Validate(); err != nil {
		return err
	}
	text, err := protojson.Marshal(statement)
	if err != nil {
		return err
	}
	var pretty bytes.Buffer // protojson's own white space differs from build to build
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", &pretty)
	return err
}

// structure converts a message to a JSON structure.
func structure(m proto.Message) (*structpb.Struct, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	of := new(structpb.Struct)
	return of, protojson.Unmarshal(text, of)
}

// subjects returns the files of a directory. It must have nothing else.
func subjects(dir string) (list []*intoto.ResourceDescriptor, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		digest, err := digest(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, &intoto.ResourceDescriptor{Name: e.Name(), Digest: digest})
	}
	return list, nil
}

// materials returns the inputs of the release: the commit, the hashes of all modules, and the compilers.
func materials(version, tree string) (list []*intoto.ResourceDescriptor, err error) {
	commit, err := output(tree, "git", "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	list = append(list, &intoto.ResourceDescriptor{
		Name: "commit", Uri: "git+https://" + project + "@refs/tags/" + version, Digest: map[string]string{"gitCommit": commit},
	})
	sums, err := output(tree, "git", "ls-files", "*.sum")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(sums) {
		sum, err := digest(filepath.Join(tree, name))
		if err != nil {
			return nil, err
		}
		list = append(list, &intoto.ResourceDescriptor{Name: name, Digest: sum})
	}
	compiler, err := output(tree, "scripts/go", "env", "GOVERSION")
	if err != nil {
		return nil, err
	}
	compiler = strings.TrimPrefix(compiler, "go")
	list = append(list, &intoto.ResourceDescriptor{Name: "go", Uri: "pkg:golang/std@" + compiler})
	for _, name := range tools {
		installed, err := output("", "dpkg-query", "--showformat", "${Version}", "--show", name)
		if err != nil {
			return nil, err
		}
		list = append(list, &intoto.ResourceDescriptor{Name: name, Uri: "pkg:deb/debian/" + name + "@" + strings.ReplaceAll(installed, "+", "%2B")})
	}
	return list, nil
}

// digest returns the SHA-256 of a file in the form of in-toto.
func digest(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return map[string]string{"sha256": hex.EncodeToString(h.Sum(nil))}, nil
}
