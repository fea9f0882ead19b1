// What the gateway has told: the same tables as in the gateway, kept by the same rule.

const MOST = { ordered: 2000, other: 500 };

export class Store {
  constructor() {
    this.gateway = null;
    this.charts = true;
    this.history = [];
    this.tables = new Map(); // job -> { about, rows: Map of key -> row }
  }

  state(state) {
    this.tables.clear();
    for (const table of Object.values(state.tables)) this.result(table);
    this.history = state.history;
    this.charts = state.charts;
    this.gateway = state.gateway;
  }

  live(gateway) {
    this.gateway = gateway;
    this.history.push({ time: gateway.time, rates: gateway.rates });
    if (this.history.length > 300) this.history.shift();
  }

  result(change) {
    const known = this.tables.get(change.job);
    const rows = change.replace || !known ? new Map() : known.rows;
    change.rows.forEach((row, number) => {
      const key = JSON.stringify(change.keys.length ? change.keys.map((name) => row[name]) : number);
      rows.delete(key);
      rows.set(key, row);
    });
    const most = change.order ? MOST.ordered : MOST.other;
    let kept = [...rows.entries()];
    if (change.order) kept.sort((a, b) => (a[1][change.order] ?? 0) - (b[1][change.order] ?? 0));
    kept = kept.slice(-most);
    this.tables.set(change.job, { batch: change.batch, time: change.time, rows: new Map(kept) });
  }

  query(query) {
    if (!this.gateway) return;
    const others = this.gateway.queries.filter((each) => each.job !== query.job);
    this.gateway.queries = [...others, query].sort((a, b) => (a.job < b.job ? -1 : 1));
  }

  rows(job) {
    const known = this.tables.get(job);
    return known ? [...known.rows.values()] : [];
  }
}
