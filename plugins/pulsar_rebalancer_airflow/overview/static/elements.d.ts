// The parts of elements. They are declared here because JSDoc has no recursive types.

export type Child = Node | string | number | false | null | undefined | Child[];
export type Attribute = string | number | boolean | null | undefined | ((event: Event) => void);
export type Attributes = Record<string, Attribute>;

export interface Column<R> {
  title: string;
  cell: (row: R) => Child;
  kind?: string;
  shown?: boolean;
}
