// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/test/testutil"
)

// pictured is the policy of the pictures in the guide.
const pictured = `devices: [fw0]
default: drop
checks: strict
daemon: {listen: 127.0.0.1:9810, sample: 1/10}
detect: {baseline: GOOD, least: 1000/s, quiet: 2s}
sets:
  office: [203.0.113.0/24]
  bans: {dynamic: true, max: 1000, timeout: 1h}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: ntp-replies, proto: udp, sport: 123, length: 468, then: drop}
  - {name: dns-limit, proto: udp, port: 53, over: {rate: 200/s, per: from, burst: 200, max: 4000}, then: drop}
services:
  - {name: web, port: [tcp/80, tcp/443], syn: {mode: host}}
  - {name: dns, port: udp/53}
  - {name: ssh, port: tcp/22, from: $office}
`

// TestPagePictures makes the pictures of docs/guides/live-page.md into the directory that FLOODWALL_PICTURES names, and does nothing
// without it:
//
//	FLOODWALL_TEST_ROOT=1 FLOODWALL_PICTURES=$PWD/docs/images scripts/go test -count=1 -run TestPagePictures ./cmd/floodwall
func TestPagePictures(t *testing.T) {
	dir := os.Getenv("FLOODWALL_PICTURES")
	if dir == "" || !inside(t) {
		return
	}
	sh(t, "ip link set fw0 address 02:00:00:00:00:02")
	home, state, random := t.TempDir(), t.TempDir(), rand.New(rand.NewPCG(1, 1))
	baselineOf(t, filepath.Join(home, "good.pcapng"), usualFrames(random, 6000))
	usualRate(t, state, 800)
	writeFile(t, filepath.Join(home, "policy.yaml"), strings.Replace(pictured, "GOOD", home+"/good.pcapng", 1))
	sh(t, "cd "+home+" && floodwall apply policy.yaml --state "+state)
	startDaemon(t, "--state", state)
	waitFor(t, "the page", func() bool { return reachable("127.0.0.1:9810") })
	b := startBrowser(t)
	b.open("127.0.0.1:9810")
	done := make(chan struct{})
	defer func() { done <- struct{}{} }()
	begin, steps := time.Now(), 0
	flood := func() (packets []string) {
		for i := range 40 {
			packets = append(packets, fmt.Sprintf("tcp 198.51.100.%d:%d > 192.0.2.1:443 A", 1+i%9, 2000+i), fmt.Sprintf("udp 198.51.100.%d:4000 > 192.0.2.1:53", 20+i%3))
		}
		if time.Since(begin) > 40*time.Second {
			for range 300 + random.IntN(80) {
				packets = append(packets, fmt.Sprintf("udp 198.18.%d.%d:123 > 192.0.2.1:%d len=468 payload=0xd700032a", random.IntN(250), 10+random.IntN(200), 1024+random.IntN(60000)))
			}
			for range 20 {
				packets = append(packets, fmt.Sprintf("udp 198.51.100.%d:11211 > 192.0.2.1:53 len=1428", 40+random.IntN(9)))
			}
		}
		return packets
	}
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			if err := testutil.SendFor("fw1", flood(), func(sent int) bool { return sent < 1 }); err != nil {
				t.Error(err)
			}
		}
	}()
	h := &apiHost{T: t, said: new(lines)}
	for ; time.Since(begin) < 70*time.Second; steps++ {
		time.Sleep(15 * time.Second)
		h.change(200, "/v1/block", map[string]any{"prefixes": []string{fmt.Sprintf("198.51.100.%d", 100+steps)}, "for": "10m", "why": "password guessing"})
	}
	mustFloodwall(t, "temporary", "add", "{name: memcached, proto: udp, sport: 11211, length: 1000-65535, observe: true, then: drop}", "--for", "1h", "--state", state)
	time.Sleep(10 * time.Second)
	for _, p := range []struct {
		name, scheme  string
		width, height int64
	}{{"page-desktop-dark", "dark", 1400, 1000}, {"page-desktop", "light", 1400, 1000}, {"page-phone", "light", 390, 1250}, {"page-phone-dark", "dark", 390, 1250}} {
		b.size(p.width, p.height, p.scheme)
		time.Sleep(2500 * time.Millisecond)
		writeFile(t, filepath.Join(dir, p.name+".png"), shrunk(t, call[struct{ Data []byte }](b, "Page.captureScreenshot", nil).Data))
	}
	b.clean("127.0.0.1:9810")
}

// shrunk returns a picture reduced to its 128 most frequent colours.
func shrunk(t *testing.T, text []byte) string {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	pixels := map[color.Color]int{}
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			pixels[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int { return pixels[b] - pixels[a] })
	few := image.NewPaletted(full.Bounds(), colours[:min(128, len(colours))])
	draw.Draw(few, few.Rect, full, image.Point{}, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
