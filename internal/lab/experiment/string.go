package experiment

import (
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// nftSearches is why there is no row for nft.
const nftSearches = "nft has no match for text anywhere"

// stringCases are the article's two, and one with more strings.
func stringCases() []packetcostTestCase {
	one := func(algo string, article rig.ArticleRow) packetcostTestCase {
		return packetcostTestCase{
			name: "string/" + algo, label: "drop, after a string match (" + algo + ")", article: &article,
			install: rig.RestoringRaw(rig.StringRules(algo, rig.Texts(1)) + "-A PREROUTING " + dropRule),
			lacks:   "it has one way to search: see string match (bm)",
		}
	}
	policy := func(n int) func() (string, func(), error) {
		return text(passPolicy + "rules:\n" + rig.StringPolicy(rig.Texts(n)) + dropPolicy)
	}
	bm, many := one("bm", rig.ArticleRow{Kpps: 255, Cost: "10%"}), one("bm", rig.ArticleRow{})
	bm.own, bm.policy, bm.times = "drop, after a string match", policy(1), rig.LeastString
	many.name, many.label, many.article = "string/n=64", "drop, after 64 string matches", nil
	many.install = rig.RestoringRaw(rig.StringRules("bm", rig.Texts(rig.MostStrings)) + "-A PREROUTING " + dropRule)
	many.policy, many.times = policy(rig.MostStrings), rig.LeastStrings
	for _, c := range []*packetcostTestCase{&bm, &many} {
		c.cannot = map[string]string{"nftables": nftSearches}
	}
	return []packetcostTestCase{bm, one("kmp", rig.ArticleRow{Kpps: 235, Cost: "17%"}), many}
}
