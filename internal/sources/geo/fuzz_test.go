// SPDX-License-Identifier: Apache-2.0

package geo_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/sources/geo"
)

// FuzzRead reads arbitrary bytes as a database. It must end, and all returned networks must be wanted ones.
func FuzzRead(f *testing.F) {
	f.Add(database(4, shared(8, 8+16), []byte(ofXX)))
	f.Add(database(6, shared(32, 32+16), []byte(ofXX)))
	f.Add(database(4, [][2]int{{1, 1 + 16}, {17, 0}}, []byte("\xe1\x57autonomous_system_number\xc2\xfc\x00")))
	file := filepath.Join(f.TempDir(), "a.mmdb")
	f.Fuzz(func(t *testing.T, content []byte) {
		defer time.AfterFunc(20*time.Second, func() { panic("it takes too long") }).Stop()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		set, networks, err := geo.Read(file, geo.Wanted{Countries: []string{"XX"}})
		if err == nil && (networks == 0 || set == nil) {
			t.Errorf("%d networks, and no error", networks)
		}
		new(geo.Finder).Open([]string{file})
	})
}
