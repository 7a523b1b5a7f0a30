// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/lab"
)

// Download is a download of the server beside requests of clients, at one of the times.
type Download struct {
	Name   string        `json:"name"`
	Mode   datapath.Mode `json:"mode,omitempty"`   // of the program on the download's link, as `floodwall status` says it; "": there is none
	Speed  float64       `json:"bytes_per_second"` // of the download
	Served float64       `json:"answered"`         // share of the clients' requests, from 0 to 1

	expected datapath.Mode
}

// The times of the downloads.
const (
	noFirewall = iota
	atRest
	inFlood
	afterFlood
)

var downloadTimes = []Download{
	noFirewall: {Name: "no firewall"},
	atRest:     {Name: "Floodwall at rest", expected: datapath.TC},
	inFlood:    {Name: "while a flood lasts", expected: datapath.Native},
	afterFlood: {Name: "after it", expected: datapath.TC},
}

// downloadXDP is the line that the policy has in place of policyXDP while the server downloads. Even a slow machine sends a flood that is faster than start.
const downloadXDP = "xdp: {when: flooded, start: 1000/s, calm: 2s}"

// A download takes downloadTime. It is many transfers of the same file, over one connection.
const (
	downloadTime = time.Second
	downloadSize = 256 << 10
)

// The addresses of the server and of the other end of the link of the download.
var downloadAddr, downloadServer = netip.MustParseAddr("20.0.1.1"), netip.MustParseAddr("20.0.1.2")

// connectDownload connects the server to a host with a large file. The link is a plain veth: the kernel's offloads are on, and XDP takes some of them.
func (s *scene) connectDownload() error {
	host, err := s.lab.Host(downloadDevice)
	if err != nil {
		return err
	}
	end := func(name string, a netip.Addr) lab.EndOptions {
		return lab.EndOptions{Name: name, Untuned: true, Addrs: []netip.Prefix{netip.PrefixFrom(a, 24)}}
	}
	s.download.server, s.download.outside, err = s.lab.Connect(s.host(), host, lab.LinkOptions{
		A: end(downloadDevice, downloadAddr), B: end("server", downloadServer),
	})
	if err != nil {
		return err
	}
	file := bytes.Repeat([]byte("Floodwall"), downloadSize/9)
	_, err = s.lab.NewServerProcess(host, netip.AddrPortFrom(downloadServer, webPort), file, s.sourceCPU, lab.Urgent)
	return err
}

// downloads makes the server download without a firewall, at rest, in a flood and after it. The policy is the same as before, but filters the download's
// link as well, and moves the program with the flood.
func (w *show) downloads(ctx context.Context, source *lab.Source) error {
	if w.options.Policy != "" {
		return nil
	}
	w.viewer.Note("floodwall unload")
	if err := w.scene.unload(ctx); err != nil {
		return err
	}
	if err := w.download(ctx, noFirewall); err != nil {
		return err
	}
	w.viewer.Note("floodwall apply " + policyFile + ", with the line " + downloadXDP)
	s := &w.scene.script
	before, after, found := strings.Cut(s.text, policyDevices+"]\n"+policyXDP)
	if !found {
		return errors.New("the policy of the demonstration has no place for the device of the download")
	}
	text := before + policyDevices + ", " + downloadDevice + "]\n" + downloadXDP + after
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		return err
	}
	if _, err := w.scene.apply(ctx); err != nil {
		return err
	}
	if err := w.download(ctx, atRest); err != nil {
		return err
	}
	stop := startFlood(ctx, source)
	if err := errors.Join(w.download(ctx, inFlood), stop()); err != nil {
		return err
	}
	if err := w.download(ctx, afterFlood); err != nil {
		return err
	}
	w.summary.Daemon = w.watch.complaint()
	return nil
}

// download waits until the program has the mode of one of the times. Then the server downloads while clients ask it.
func (w *show) download(ctx context.Context, at int) error {
	d := downloadTimes[at]
	w.viewer.Note("a download, " + d.Name)
	if err := w.awaitMode(ctx, &d); err != nil {
		return err
	}
	var served, loaded lab.LoadSummary
	var servedErr, loadedErr error
	var running sync.WaitGroup
	running.Go(func() {
		served, servedErr = lab.Load(ctx, lab.LoadOptions{
			Host: w.scene.clients.outside.Host, Apart: true, CPU: w.scene.sourceCPU, Server: netip.AddrPortFrom(serverAddr, webPort),
			Rate: w.options.Requests, Timeout: requestTimeout, Duration: downloadTime,
		})
	})
	running.Go(func() {
		loaded, loadedErr = lab.Load(ctx, lab.LoadOptions{
			Host: w.scene.host(), Apart: true, CPU: w.scene.hostCPU, Server: netip.AddrPortFrom(downloadServer, webPort),
			KeepAlive: true, Timeout: patience, Duration: downloadTime,
		})
	})
	running.Wait()
	d.Speed, d.Served = float64(loaded.Bytes)/loaded.Time.Seconds(), (&Phase{Requests: served}).answered()
	w.summary.Downloads = append(w.summary.Downloads, d)
	return errors.Join(servedErr, loadedErr, ctx.Err())
}

// awaitMode waits until the program has the expected mode, but not longer than patience. It sets the mode of d.
func (w *show) awaitMode(ctx context.Context, d *Download) error {
	for end := time.Now().Add(patience); d.Mode != d.expected && time.Now().Before(end) && ctx.Err() == nil && w.watch.complaint() == ""; time.Sleep(lookEvery) {
		status, err := w.scene.status()
		if err != nil {
			return err
		}
		d.Mode = modeOf(status, downloadDevice)
	}
	return ctx.Err()
}

// modeOf returns the mode of a device.
func modeOf(status *control.Status, device string) datapath.Mode {
	for _, d := range status.Devices {
		if d.Name == device {
			return datapath.Mode(d.Mode)
		}
	}
	return ""
}

// unmoved returns the first download at which the program was in a wrong mode, or nil.
func (s *Summary) unmoved() *Download {
	for i, d := range s.Downloads {
		if d.Mode != d.expected {
			return &s.Downloads[i]
		}
	}
	return nil
}

func (s *Summary) unmovedText() string {
	d := s.unmoved()
	return fmt.Sprintf("%s, the program on the link of the download was not in mode %s within %v", d.Name, d.expected, patience)
}

// downloadText returns a table of the downloads.
func (s *Summary) downloadText(width int) string {
	var out strings.Builder
	out.WriteString(wrap("A download of the server through a plain veth with all its offloads, with the line `"+downloadXDP+"`. Speeds are of the one without a firewall.", width))
	fmt.Fprintf(&out, "%-24s%12s%12s%12s\n", "", "speed", "mode", "answered")
	for _, d := range s.Downloads {
		fmt.Fprintf(&out, "%-24s%12.2f%12s%12s\n", d.Name, d.Speed/s.Downloads[0].Speed, d.Mode, percent(d.Served))
	}
	return out.String()
}
