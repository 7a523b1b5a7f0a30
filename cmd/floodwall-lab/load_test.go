// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/floodwall/floodwall/cmd/internal/cli"
)

// TestLoadScripts runs the scripts of load, which need no rights. Each script has environment variables with URLs: WEB and SECURE are web servers, no
// server listens at NOTHING, and the server at SILENT never answers. `asked N` fails unless the server received N requests since the previous
// `asked`.
func TestLoadScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/load",
		Setup: func(e *testscript.Env) error {
			asked := new(atomic.Uint64)
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if strings.HasPrefix(r.URL.Path, "/busy") {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				fmt.Fprintf(w, "%s %s %s\n", r.Method, r.Host, r.Header.Get("X-Test"))
			})
			web, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
			e.Defer(web.Close)
			e.Defer(secure.Close)
			silent, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				return err
			}
			e.Defer(func() { silent.Close() })
			nothing, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				return err
			}
			nothing.Close()
			e.Setenv("WEB", web.URL)
			e.Setenv("SECURE", secure.URL)
			e.Setenv("SILENT", "http://"+silent.Addr().String())
			e.Setenv("NOTHING", "http://"+nothing.Addr().String())
			e.Values["asked"] = asked
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"asked": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := fmt.Sprint(ts.Value("asked").(*atomic.Uint64).Swap(0)); got != args[0] {
					ts.Fatalf("the server got %s requests, want %s", got, args[0])
				}
			},
			"interrupt": interrupt,
		},
	})
}

// interrupt runs a command, interrupts it after the server received requests, and checks its exit status. Usage: interrupt COMMAND...
func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	var stdout, stderr strings.Builder
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	asked := ts.Value("asked").(*atomic.Uint64)
	asked.Store(0)
	ts.Check(cmd.Start())
	for asked.Load() < 5 {
		time.Sleep(10 * time.Millisecond)
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // its status is what counts
	if got := cmd.ProcessState.ExitCode(); got != cli.ExitInterrupted {
		ts.Fatalf("status %d, want %d: %s", got, cli.ExitInterrupted, &stderr)
	}
	if !regexp.MustCompile(`(?m)^answered  [1-9]\d*, `).MatchString(stdout.String()) {
		ts.Fatalf("it does not say what was measured:\n%s", &stdout)
	}
}
