// The documents that the page reads; written by scripts/reference.py.
export interface Attention { text: string; since: string | null; acts: string[]; }
export interface BrokerChangeView { name: string; before: number; after: number; }
export interface BrokerRestart { broker: string; score: number; traffic: number; bundles: number; minutes: number;
  why_not: string; }
export interface BrokerView { name: string; label: string; score: number | null; resources: Record<string, number>;
  deciding: string; lowest: number | null; highest: number | null; after: number | null; left_out: string; band: string;
  drained: string; average: number | null; average_throughput: number | null; msg_throughput: number; bundles: number; }
export interface DrainView { broker: string; drained: string; bundles: number | null; movable: number | null;
  moving: number; gone: number; left: StayView[]; more: number; }
export type Effect = "block" | "hold" | "quarantine" | "warn" | "verdict";
export interface Event { at: string; kind: string; text: string; }
export interface ExplainedReason { reason: Reason; count: number; worst: string[]; action: string; meaning: string;
  effect: Effect; }
export interface FoundBundle { bundle: string; broker: string; traffic: number; topics: number; reason: string;
  why: string; moved: string; }
export interface FoundBundles { bundles: FoundBundle[]; all: number; broker: string; sampled_at: string | null; }
export interface HitsView { have: number; need: number; }
export interface Line { name: string; lower: number; upper: number; }
export interface Links { dag: string; requests: string; run: string; log: string; validation: string; }
export interface Move { bundle: string; source: string; destination: string; wave: number; traffic: number;
  measure: string; msg_throughput: number; }
export interface MoveView { topics: number; clients: number; why: string; ended: OutcomeView | null; planned: Move;
  client_gap: string; }
export interface OrderButton { name: string; title: string; hint: string; until: boolean; subject: string;
  proposed: string; button: string; group: string; }
export interface OutcomeView { reason: Reason; ok: boolean; seconds: number; error: string; meaning: string; }
export interface Overview { version: number; run_id: string; folder: string; sampled_at: string | null;
  of_one_run: boolean; status: Status; middle: number | null; lines: Line[]; brokers: BrokerView[]; pairs: PairView[];
  close_pairs: number; firing: string; hits: HitsView | null; plan: PlanView | null; awaiting: PlanView | null;
  last: PlanView | null; moved: UndoView | null; changed_at: string | null; drains: DrainView[]; roll: RollView | null;
  findings: ExplainedReason[]; validated: boolean; links: Links; acts: UserActions; }
export interface PairView { number: number; source: string; destination: string; gap: number | null; band: string;
  hits: Record<string, HitsView>; fired: boolean; seconds_to_fire: number | null; overdue: string; reason: string;
  meaning: string; explanation: string; }
export interface PlanView { folder: string; run_id: string; hash: string; collected_at: string; until: string;
  ended_at: string | null; has_effect: boolean; marks_drains: boolean; by: string; requested_by: string[];
  verdict: ReasonWithMeaning | null; measure: string; bundles: number; traffic: number; topics: number; clients: number;
  range_before: number | null; predicted_range: number | null; brokers: BrokerChangeView[]; moves: MoveView[];
  more: number; splits: SplitView[]; about_splits: string[]; unknown: string[]; stay: StayCount[]; done: number;
  failed: number; client_gap: string; }
export interface Point { at: string; range: number | null; }
export interface QuestionView { dag: string; run: string; task: string; hash: string; until: string; }
export type Reason = string;
export interface ReasonWithMeaning { reason: Reason; meaning: string; }
export interface RollView { text: string; turns: TurnView[]; stop: string; }
export interface RunAnswer { state: string; text: string; plan: string; restarts: ShownRestarts | null; }
export interface ShownRestarts { plan: string; refused: string; waits: string; restarts: BrokerRestart[];
  minutes: number; moves_twice: number; }
export interface Split { bundle: string; broker: string; algorithm: SplitAlgorithm; positions: number[];
  shares: number[]; unload: boolean; condition: string; value: number; bound: number; }
export type SplitAlgorithm = "range_equally_divide" | "topic_count_equally_divide" | "specified_positions_divide" |
  "flow_or_qps_equally_divide";
export interface SplitView { topics: number; clients: number; why: string; ended: OutcomeView | null; planned: Split; }
export type State = "balanced" | "waiting" | "moving" | "moved" | "would move" | "awaiting approval" | "unbalanced" |
  "held back" | "paused" | "off" | "no data" | "looking" | "stale" | "blocked" | "failed" | "broken" | "unreadable";
export interface Status { cluster: string; dag_id: string; mode: string; strategy: string; pairing: boolean;
  state: State; tone: Tone; sentence: string; attention: Attention[]; in_force: string; now: string;
  collected_at: string | null; fresh_until: string | null; running_since: string | null; interval_seconds: number;
  next_run_at: string | null; score_range: number | null; predicted: boolean; }
export interface StayCount { reason: Reason; count: number; meaning: string; }
export interface StayView { reason: Reason; bundle: string; broker: string; meaning: string; }
export interface Timeline { begin: string; end: string; low_threshold: number | null; high_threshold: number | null;
  points: Point[]; events: Event[]; unread: number; }
export type Tone = "good" | "busy" | "warn" | "bad" | "idle";
export interface TurnView { broker: string; state: string; detail: string; }
export interface UndoView { folder: string; collected_at: string; }
export interface UserActions { control: string; orders: OrderButton[]; rebalance: string; carries_out: string;
  by_hand: string; roll: string; question: QuestionView | null; grace_minutes: number; rolls: boolean; closed: string;
  stays_closed: string; paused_dags: string[]; barred: string[]; }
