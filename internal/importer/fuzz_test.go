// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/policy"
)

// FuzzImport gives random bytes to the parsers. They must not panic. If the result is a policy, it must be valid.
func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range a.Files {
			f.Add(part.Data)
		}
	}
	f.Add([]byte(`{"nftables":[{"chain":{"family":"ip","table":"t","name":"c","hook":"input","prio":0,"policy":"drop"}},` +
		`{"set":{"family":"ip","table":"t","name":"s","type":"ipv4_addr","elem":["192.0.2.1",{"prefix":{"addr":"10.0.0.0","len":8}}]}},` +
		`{"rule":{"family":"ip","table":"t","chain":"c","expr":[{"match":{"op":"!=","left":{"payload":{"protocol":"ip","field":"saddr"}},` +
		`"right":"@s"}},{"vmap":{"key":{"ct":{"key":"state"}},"data":{"set":[["new",{"drop":null}]]}}}]}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.HasPrefix(bytes.TrimSpace(data), []byte("table")) || len(data) > 1<<16 {
			return // nft itself parses this text, so this package's parsers are not tested
		}
		defer time.AfterFunc(20*time.Second, func() { panic("it takes too long") }).Stop()
		for _, format := range []importer.Format{importer.Iptables, importer.IP6tables, importer.Nft} {
			if format == importer.Nft && !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
				continue
			}
			source := importer.Source{Name: "f", Data: data}
			r, err := importer.Import(context.Background(), []importer.Source{source},
				importer.Options{Format: format, Devices: []string{"fw0"}, Router: len(data)%2 == 0})
			if err != nil {
				continue
			}
			if r.Differs != "" {
				t.Errorf("%s\n%v\n%s", r.Differs, r.Lost, r.Policy)
			}
			if _, err := policy.Parse("f.yaml", []byte(r.Policy)); err != nil {
				t.Errorf("%v\n%s", err, r.Policy)
			}
		}
	})
}
