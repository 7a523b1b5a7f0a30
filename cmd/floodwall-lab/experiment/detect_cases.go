package experiment

import (
	"cmp"
	"slices"
	"time"

	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/traffic"
)

// detectCases returns the rows: unusual honest traffic, and attacks.
func detectCases() []*detectCase {
	list := honestCases()
	for _, m := range append(traffic.Attacks(), traffic.Recordings()...) {
		c := &detectCase{Model: m}
		if m.Name == "small" {
			c.learned = traffic.SmallTimes
			c.usual = func(time.Duration) float64 { return traffic.SmallTimes }
		}
		list = append(list, c)
		if slices.Contains([]string{"syn", "ack", "turns"}, m.Name) {
			guarded := *m
			guarded.Name, guarded.Label = m.Name+"-protected", m.Label+"; `syn: protect` as `init` writes it"
			list = append(list, &detectCase{Model: &guarded, protected: true})
		}
	}
	list = append(list, &detectCase{
		Model: &traffic.Model{Name: "fast", Label: "1 million answers of NTP servers a second", Lasts: 20 * time.Second},
		alone: true,
		kernel: []lab.Flow{{
			From: lab.MustAddrs("128.0.0.0/2"), To: lab.Addr(traffic.Host), SPort: lab.Port(123), DPort: lab.Port(traffic.Game),
			Payload: append([]byte("\xd7\x00\x03\x2a\x00\x06\x00\x48"), make([]byte, 100)...),
		}},
	})
	for _, c := range list {
		if c.usual == nil {
			c.usual = traffic.Once
		}
		c.learned = cmp.Or(c.learned, 1)
	}
	return list
}

// honestCases returns cases of honest traffic, which the host answers.
func honestCases() []*detectCase {
	model := func(name, label string) *traffic.Model {
		return &traffic.Model{Name: name, Label: label, Honest: true, Lasts: 20 * time.Second}
	}
	doubling := model("doubling", "the usual mix, which doubles every 20 s to eight times")
	doubling.Lasts = 65 * time.Second
	single := func(name string, port uint16, from ...string) (list []traffic.Class) {
		for _, a := range from {
			list = append(list, traffic.Class{Name: name, From: lab.ParseAddrs(a)[0], Proto: lab.TCP, Port: port})
		}
		return list
	}
	return []*detectCase{
		{Model: model("usual", "the usual mix alone")},
		{Model: traffic.Crowd()},
		{Model: traffic.World()},
		{Model: model("http", "a crowd of usual clients at the web server"), tcp: func(t *tcpTraffic) {
			t.browse(traffic.UsualClients, traffic.HTTP, 600)
			t.browse(traffic.UsualClients, traffic.HTTPS, 600)
		}},
		{Model: model("upload", "one client uploads a backup over one connection"), tcp: func(t *tcpTraffic) { t.upload(traffic.Uploader, traffic.SSH) },
			classes: single("upload", traffic.SSH, traffic.Uploader.String()+"/32")},
		{Model: model("download", "one client downloads a large file"), tcp: func(t *tcpTraffic) { t.download(traffic.Downloader, traffic.HTTPS) },
			classes: single("download", traffic.HTTPS, traffic.Downloader.String()+"/32")},
		{Model: traffic.Scan()},
		{Model: traffic.NAT()},
		{Model: model("cdn", "four addresses of a CDN with most of the traffic"), tcp: func(t *tcpTraffic) { t.fetch(traffic.CDN, traffic.HTTPS, 64, 15*time.Millisecond) },
			classes: single("cdn", traffic.HTTPS, traffic.CDN.String())},
		{Model: traffic.Polls(), tcp: func(t *tcpTraffic) {
			for _, port := range []uint16{traffic.HTTP, traffic.HTTPS, traffic.SSH} {
				t.poll(traffic.Monitor, port, 100)
			}
		}, classes: single("monitor tcp", 0, traffic.Monitor.String()+"/32")},
		{Model: traffic.Hour()},
		{Model: doubling, usual: traffic.Doubling},
	}
}
