// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// localAPI is Debian's CrowdSec, with its files in a directory of the test. It serves only its local API, and reads no log.
type localAPI struct {
	*testing.T
	dir, bin string
	server   *exec.Cmd
	log      *lines
}

const crowdsecAddress = "127.0.0.1:8080"

func newCrowdsec(t *testing.T, bin string) *localAPI {
	t.Helper()
	c := &localAPI{T: t, dir: t.TempDir(), bin: bin, log: new(lines)}
	config := strings.ReplaceAll(`common: {daemonize: false, log_media: stdout, log_level: info, working_dir: DIR, pid_dir: DIR}
config_paths: {config_dir: DIR, data_dir: DIR, hub_dir: DIR/hub, index_path: DIR/hub/.index.json, simulation_path: DIR/simulation.yaml,
  notification_dir: DIR/notifications, plugin_dir: DIR/plugins}
cscli: {output: json}
db_config: {type: sqlite, db_path: DIR/db, log_level: info, use_wal: true}
plugin_config: {user: root, group: root}
api:
  client: {credentials_path: DIR/credentials.yaml}
  server: {log_level: info, listen_uri: `+crowdsecAddress+`, profiles_path: DIR/profiles.yaml, console_path: DIR/console.yaml}
prometheus: {enabled: false}
`, "DIR", c.dir)
	for name, text := range map[string]string{
		"config.yaml": config, "simulation.yaml": "simulation: false\n", "hub/.index.json": "{}", "notifications/none": "", "plugins/none": "",
		"profiles.yaml": "name: default\nfilters: ['Alert.Remediation == true']\ndecisions: [{type: ban, duration: 4h}]\non_success: break\n",
	} {
		writeFile(t, filepath.Join(c.dir, name), text)
	}
	c.cscli("machines", "add", "test", "-a", "-f", c.dir+"/credentials.yaml")
	return c
}

// cscli runs the command of crowdsec. It tries again when the server's SQLite database is locked.
func (c *localAPI) cscli(args ...string) string {
	c.Helper()
	run := func() ([]byte, error) {
		return exec.Command(c.bin+"/cscli", append([]string{"-c", c.dir + "/config.yaml"}, args...)...).CombinedOutput()
	}
	out, err := run()
	for try := 0; err != nil && strings.Contains(string(out), "database is locked") && try < 5; try++ {
		out, err = run()
	}
	if err != nil {
		c.Fatalf("cscli %v: %v\n%s\n%s", args, err, out, c.log)
	}
	return string(out)
}

func (c *localAPI) start() {
	c.Helper()
	c.server = exec.Command(c.bin+"/crowdsec", "-c", c.dir+"/config.yaml", "-no-cs")
	c.server.Stdout, c.server.Stderr = c.log, c.log
	if err := testutil.Start(c.server); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(c.kill)
	waitFor(c.T, "crowdsec", func() bool {
		_, err := get(crowdsecAddress, "/health") // a server with TLS answers that the request is not TLS
		return err == nil
	})
}

func (c *localAPI) kill() {
	c.server.Process.Kill()
	c.server.Wait()
}

// TestCrowdSec checks that decisions of a real CrowdSec local API take effect on packets to a real socket. It also stops the server, kills the
// daemon, and makes decisions for addresses that no program may ban.
func TestCrowdSec(t *testing.T) {
	bin := testutil.Debian(t, "crowdsec")
	if !inside(t) {
		return
	}
	s, c := serve(t), newCrowdsec(t, bin)
	keyFile := c.dir + "/key"
	told := new(lines)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(told, r.Body) }))
	defer hook.Close()
	policy := c.dir + "/policy.yaml"
	writeFile(t, policy, strings.Replace(fail2banPolicy, "sets:",
		fmt.Sprintf("daemon: {webhook: {url: %q}, crowdsec: {url: %q, key_file: %s, every: 1s}}\nsets:", hook.URL, "http://"+crowdsecAddress, keyFile), 1))
	if out := mustFloodwall(t, "apply", policy); !strings.Contains(out, "nobody tells the webhook what happens, nor bans as CrowdSec decides while `floodwall daemon` does not run") {
		t.Errorf("apply without a daemon says:\n%s", out)
	}
	h := startDaemon(t)
	s.also = func() string { return h.said.String() }
	said := func(text string) {
		t.Helper()
		waitFor(t, "the daemon to say "+text+": "+h.said.String(), func() bool { return strings.Contains(h.said.String(), text) })
	}
	said("crowdsec: key_file: open " + keyFile)
	writeFile(t, keyFile, "wrong\n")
	said("can be read by others: its mode is 0644")
	c.start()
	if err := os.Chmod(keyFile, 0o600); err != nil {
		t.Fatal(err)
	}
	said("does not accept the key in " + keyFile)
	writeFile(t, keyFile, "thekeyofthisbouncer\n")
	c.cscli("bouncers", "add", "floodwall", "-k", "thekeyofthisbouncer")
	said("answers")

	const one, two, six, hand, never = "198.51.100.7", "203.0.114.9", "2001:db8:7::1", "198.51.100.8", "198.51.100.77"
	all := []string{one, two, six, hand, never}
	mustFloodwall(t, "block", hand, "--for", "forever")
	for _, d := range [][]string{
		{"-i", one, "-d", "1h", "-R", "short"}, {"-i", one, "-d", "4h", "-R", "long"}, {"-r", "203.0.114.0/24", "-d", "2h"},
		{"-i", six, "-d", "2h"}, {"-i", hand, "-d", "2h"}, {"-i", never, "-d", "2h"}, {"-i", "192.0.2.1", "-d", "2h"},
		{"-i", "198.51.100.9", "-t", "captcha"}, {"--scope", "country", "--value", "XX"},
	} {
		c.cscli(append([]string{"decisions", "add"}, d...)...)
	}
	s.banned("after decisions", all, one, two, six, hand)
	said("192.0.2.1 has in it 192.0.2.1, an address of this host")
	said(`of another type than ban are ignored, as "captcha"`)
	if out := mustFloodwall(t, "blocked"); !matches(one+` +bans +(4h|3h59m)\S* +crowdsec +long`, out) || !matches(hand+` +bans +forever +manual`, out) {
		t.Errorf("blocked prints\n%s", out)
	}

	waitFor(t, "the webhook", func() bool {
		return strings.Contains(told.String(), "[address] has in it [address], an address of this host")
	})
	if strings.Contains(told.String(), "192.0.2.1") {
		t.Errorf("the webhook is told addresses: %s", told)
	}

	// Two decisions ban this address. After one is deleted, the other remains, and the ban ends sooner.
	c.cscli("decisions", "delete", "--id", "2")
	waitFor(t, "the shorter ban", func() bool { return matches(one+` +bans +(1h|59m)\S* +crowdsec +short`, mustFloodwall(t, "blocked")) })
	s.banned("with one decision left", all, one, two, six, hand)

	// While the server is down nothing may change, even if the daemon restarts. The daemon must apply the missed changes later.
	c.kill()
	h.kill()
	h = startDaemon(t)
	said("connection refused")
	s.banned("without the server", all, one, two, six, hand)
	c.start()
	c.cscli("decisions", "delete", "-i", one)
	c.cscli("decisions", "delete", "-i", hand)
	s.banned("after the last decision is deleted", all, two, six, hand)

	// A new set must get all bans again. Without the key, no more decisions may arrive.
	mustFloodwall(t, "unload")
	mustFloodwall(t, "apply", policy)
	s.banned("in a new set", all, two, six)
	scrape := h.must(200, readSocket, "/v1/metrics").body
	// The counter includes the two bans of the new set. It may include some of the three earlier bans: those with a later end than the previous
	// daemon knew.
	if !regexp.MustCompile(`floodwall_bans_total\{origin="crowdsec"\} [2-5]\n`).MatchString(scrape) {
		t.Errorf("metrics: %s", grep(scrape, "bans_total"))
	}

	// The server now has a hundred thousand decisions. The set accepts bans up to three quarters of its capacity.
	writeFile(t, policy, strings.ReplaceAll(string(must(os.ReadFile(policy))), "max: 1000,", "max: 100000,"))
	mustFloodwall(t, "apply", policy)
	n := 2000
	if os.Getenv("FLOODWALL_LONG") != "" {
		n = 100_000
	}
	var list strings.Builder
	list.WriteString("duration,scope,value\n")
	for i := range n {
		fmt.Fprintf(&list, "%dm,ip,11.%d.%d.%d\n", 60+i/1000, i>>16, i>>8&255, i&255)
	}
	writeFile(t, c.dir+"/list.csv", list.String())
	c.cscli("decisions", "import", "-i", c.dir+"/list.csv")
	want := min(n, 75_000-2)
	began := time.Now()
	waitFor(t, "all decisions", func() bool {
		var held struct {
			Sets []struct {
				Name    string
				Entries int
			}
		}
		unmarshal(t, mustFloodwall(t, "status", "--json"), &held)
		return held.Sets[0].Entries >= want
	})
	t.Logf("%d decisions were in force %v after their import", n, time.Since(began))
	c.cscli("decisions", "delete", "--all")
	s.banned("after all decisions are deleted", all)
	c.testTLS(t, s, policy, said)
}

// testTLS configures the local API to use client certificates in place of a key.
func (c *localAPI) testTLS(t *testing.T, s *served, policy string, said func(string)) {
	t.Helper()
	c.kill()
	sh(t, strings.ReplaceAll(`cd DIR
		key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
		openssl req -x509 $key -keyout ca.key -out ca.pem -subj /CN=ca -days 2
		for who in server bouncer stranger; do
			openssl req $key -keyout $who.key -out $who.csr -subj /OU=$who/CN=$who
			printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' >$who.ext
			openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $who.crt -days 2 -extfile $who.ext
		done
		(umask 077; cat stranger.crt stranger.key >client.pem; cat bouncer.crt bouncer.key >bouncer.pem)`, "DIR", c.dir))
	config := c.dir + "/config.yaml"
	writeFile(t, config, strings.Replace(string(must(os.ReadFile(config))), "server: {", strings.ReplaceAll(
		`server: {tls: {cert_file: DIR/server.crt, key_file: DIR/server.key, ca_cert_path: DIR/ca.pem, client_verification: VerifyClientCertIfGiven,
    bouncers_allowed_ou: [bouncer], agents_allowed_ou: [agent]}, `, "DIR", c.dir), 1))
	text := string(must(os.ReadFile(policy)))
	text = strings.ReplaceAll(strings.Replace(text, "key_file: "+c.dir+"/key", fmt.Sprintf("cert: %[1]s/client.pem, ca: %[1]s/ca.pem", c.dir), 1),
		"http://"+crowdsecAddress, "https://"+crowdsecAddress)
	writeFile(t, policy, text)
	sh(t, strings.ReplaceAll("sed -i s,http:,https:, DIR/credentials.yaml; echo ca_cert_path: DIR/ca.pem >>DIR/credentials.yaml", "DIR", c.dir))
	c.start()
	mustFloodwall(t, "apply", policy)
	said("does not accept the certificate in " + c.dir + "/client.pem")
	sh(t, "mv "+c.dir+"/bouncer.pem "+c.dir+"/client.pem")
	said("crowdsec: https://" + crowdsecAddress + " answers")
	c.cscli("decisions", "add", "-i", "198.51.100.7")
	s.banned("over TLS", []string{"198.51.100.7"}, "198.51.100.7")
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func unmarshal(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}
