// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBill writes the bill of materials of a program twice. It must list every module. e2e/schemas validates the bill of a real program. Both times the bytes
// must be equal.
func TestBill(t *testing.T) {
	info, err := debug.ParseBuildInfo(noted)
	if err != nil {
		t.Fatal(err)
	}
	info.GoVersion = "go1.26.1"
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := writeBill(w, info, "1.2.3"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the second bill differs from the first")
	}
	var bill struct {
		Metadata struct {
			Component struct{ PURL, Version string }
		}
		Components []struct{ PURL string }
	}
	if err := json.Unmarshal(first.Bytes(), &bill); err != nil {
		t.Fatal(err)
	}
	if got := bill.Metadata.Component; !strings.HasPrefix(got.PURL, "pkg:golang/github.com/floodwall/floodwall") || got.Version != "1.2.3" {
		t.Errorf("the program is %+v", got)
	}
	want := []string{"pkg:golang/std@1.26.1", "pkg:golang/go4.org/netipx@v0.0.0-20260823151212-3075585bcbeb",
		"pkg:golang/example.org/a@v1.2.3", "pkg:golang/example.org/fork@v2.0.0%2Bincompatible"}
	var got []string
	for _, c := range bill.Components {
		got = append(got, c.PURL)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
}

// noted is build information as the Go command writes it into a program. The build information of a test binary lists no modules.
const noted = "path\tgithub.com/floodwall/floodwall/cmd/floodwall\n" +
	"mod\tgithub.com/floodwall/floodwall\t(devel)\t\n" +
	"dep\tgithub.com/floodwall/floodwall/cmd/floodwall-hub\t(devel)\t\n" + // another module of this project
	"dep\tgo4.org/netipx\tv0.0.0-20260823151212-3075585bcbeb\th1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n" +
	"dep\texample.org/a\tv1.2.3\th1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n" +
	"dep\texample.org/b\tv1.0.0\n=>\texample.org/fork\tv2.0.0+incompatible\th1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
